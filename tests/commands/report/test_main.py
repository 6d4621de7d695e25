"""Tests `train.py report` as users call it."""

import json
import re
import subprocess
import sys

import pytest

from commands.report.main import main
from commands.report.page_data import page_content
from commands.report.study_summary import StudySummary, TrialSummary
from commands.sweep.summary import write_summary
from tests.commands.report.recorded import Recorded, killed_and_resumed
from tests.conftest import REPOSITORY


def error_of(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    return capsys.readouterr().err


def test_a_report_is_written_of_one_run_of_several_and_into_a_named_file(runs, capsys):
    for seed in (1, 2):
        killed_and_resumed(runs / f"a-{seed}", seed)
    main(["a-1"])
    main([str(runs / "a-1"), "a-2", "runs/a-1"])
    main(["a-1", "--output", "elsewhere/page.html"])
    printed = capsys.readouterr()
    assert printed.err == "python train.py report: runs/a-1 is given twice and read once\n"
    output = printed.out.splitlines()
    assert [line.split()[0] for line in output] == [
        "runs/a-1/report.html",
        str(runs / "report.html"),
        "elsewhere/page.html",
    ]
    text = (runs / "report.html").read_text(encoding="utf-8")
    assert "<title>2 runs" in text, "a run that is named twice is one"
    assert "://" not in text.replace("http://www.w3.org/2000/svg", ""), "nothing from elsewhere"


def test_only_a_study_writes_the_page_of_its_folder(runs, capsys):
    trials = [TrialSummary(number, f"trial-{number:04}", "running", None, None, {}) for number in (0, 1)]
    (runs / "study").mkdir(parents=True)
    write_summary(StudySummary("val/ndcg@10", "maximize", [], trials, ""), runs / "study")
    assert "no trial of the study has started its training" in error_of(capsys, "study")
    for trial in trials:
        Recorded(runs / "study" / trial.name)
    Recorded(runs / "other")
    given = ["study"], ["study", "other"], [f"runs/study/{trial.name}" for trial in trials], ["other", "study"]
    for names in given:
        main(names)
    pages = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert pages == [
        "runs/study/report.html",
        "runs/study/compared.html",
        "runs/study/compared.html",
        "runs/report.html",
    ]
    assert "<title>study" in (runs / "study/report.html").read_text(encoding="utf-8")


def test_a_wrong_run_file_or_output_is_named(runs, capsys):
    Recorded(runs / "a")
    (runs / "empty").mkdir()
    assert "no run 'b': runs/b is not a directory; existing runs: a" in error_of(capsys, "b")
    assert "no run '/no/b': /no/b is not a directory" in error_of(capsys, "/no/b")
    assert "runs/empty has neither metrics.jsonl nor log.jsonl" in error_of(capsys, "empty")
    (runs / "a" / "environment.json").write_text("{")
    assert "runs/a/environment.json is not JSON" in error_of(capsys, "a")
    (runs / "a" / "environment.json").unlink()
    (runs / "file").write_text("")
    assert "runs/file" in error_of(capsys, "a", "--output", "runs/file/page.html")
    expected = "--output runs is a directory, expected a file such as runs/report.html"
    assert expected in error_of(capsys, "a", "--output", "runs")


def test_of_several_what_is_no_run_is_passed_over(runs, capsys):
    """`runs/*` may also match a report and the records of MLflow."""
    for name in "a", "b":
        Recorded(runs / name)
    (runs / "mlflow.db").write_text("")
    (runs / "mlflow-files").mkdir()
    main(["runs/a", "runs/b", "runs/mlflow-files", "runs/mlflow.db"])
    assert capsys.readouterr().err.splitlines() == [
        f"python train.py report: runs/{name} is not a run directory, skipped" for name in ("mlflow-files", "mlflow.db")
    ]
    assert "<title>2 runs" in (runs / "report.html").read_text(encoding="utf-8")
    assert "no run 'c'" in error_of(capsys, "runs/a", "c"), "a name that is not there at all is an error"
    assert "neither metrics.jsonl nor log.jsonl" in error_of(capsys, "runs/mlflow-files", "runs/mlflow.db")


def test_an_older_page_stays_when_a_new_one_cannot_be_written(runs, capsys, monkeypatch):
    Recorded(runs / "a")
    (runs / "a" / "report.html").write_text("older")
    monkeypatch.setattr("engine.io.atomic_file.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert "No space left" in error_of(capsys, "a")
    assert (runs / "a" / "report.html").read_text() == "older"
    assert [path.name for path in (runs / "a").glob(".*")] == []


def test_a_run_that_has_just_begun(runs):
    """A run without metrics, log and config has a page without them."""
    run = Recorded(runs / "a")
    (run.folder / "config.yaml").unlink()
    (run.folder / "environment.json").unlink()
    main(["a"])
    assert (run.folder / "report.html").stat().st_size > 10_000


def test_the_report_of_two_seeds_and_another_setting_has_all_their_values(runs):
    folders = [
        killed_and_resumed(runs / name, seed, dropout).folder
        for name, seed, dropout in (("a-1", 1, 0.1), ("b", 1, 0.5), ("a-2", 2, 0.1))
    ]
    content = page_content(folders, runs / "report.html")
    assert content["groups"] == [{"name": "a", "runs": [0, 2]}, {"name": "b", "runs": [1]}]
    assert content["differences"] == [
        {"key": "seed_everything", "values": ["1", "1", "2"]},
        {"key": "model.init_args.dropout", "values": ["0.1", "0.5", "0.1"]},
    ]
    run = content["runs"][0]
    assert [(attempt["from"], attempt["to"], attempt["began"], attempt["ended"]) for attempt in run["attempts"]] == [
        (0, 170, 0, 170),
        (150, 400, 300, 551),
    ]
    assert run["results"]["val_step"] == 200
    assert run["results"]["test"] == {"test/ndcg@10": 0.61}
    loss = run["series"]["train/loss"]
    assert run["points"][loss["points_index"]]["step"] == tuple(range(10, 401, 10))
    assert run["points"][loss["points_index"]]["time"][14:17] == (150, 310, 320), "the break between the starts"
    assert run["series"]["train/learning_rate"]["points_index"] == loss["points_index"], "steps and times are kept once"
    assert run["summary"]["samples_per_second"] == 1205


def test_the_report_reads_what_a_real_training_writes(trained, tmp_path):
    """The files that other tests write by hand equal those of a real run."""
    content = page_content([trained / "runs/recommender-quickstart-job1"], tmp_path / "page.html")
    (run,) = content["runs"]
    assert [(attempt["from"], attempt["to"], attempt["end"]) for attempt in run["attempts"]] == [(0, 26, "run_ended")]
    assert run["counts"]["run_started"] == run["counts"]["run_ended"] == 1
    assert run["counts"]["checkpoint_saved"] >= 2
    assert [event["step"] for event in run["events"] if event["event"] == "evaluated"] == [13, 26]
    assert run["monitor"] == {"name": "val/ndcg@10", "mode": "max"}
    assert run["results"]["val_step"] in (13, 26)
    assert [step["step"] for step in run["examples"]["steps"]] == [13, 26]
    assert run["examples"]["samples"]
    assert len(run["series"]["train/loss"]["mean"]) == 26
    assert run["environment"]["packages"]["torch"]
    assert run["settings"]["data.init_args.batch_size"] == "16"


def test_links_lead_to_the_reports_beside(runs):
    run = Recorded(runs / "a")
    (run.folder / "prediction_report.html").write_text("")
    (run.folder / "report.html").write_text("an older one of its own")
    (run.folder / "http:a #1?50%.html").write_text("")
    for page, folder in ((run.folder / "report.html", "./"), (runs.parent / "pages" / "x.html", "./../runs/a/")):
        assert [link["href"] for link in page_content([run.folder], page)["runs"][0]["links"]] == [
            f"{folder}http%3Aa%20%231%3F50%25.html",
            f"{folder}prediction_report.html",
        ]


def test_a_file_on_another_drive_has_no_link(runs, monkeypatch):
    run = Recorded(runs / "a")
    (run.folder / "prediction_report.html").write_text("")

    def refuse(*_):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("commands.report.page_data.os.path.relpath", refuse)
    assert page_content([run.folder], runs / "report.html")["runs"][0]["links"] == []


@pytest.mark.slow
def test_a_long_run_gives_a_page_of_bounded_size(runs):
    run = Recorded(runs / "a")
    with (run.folder / "metrics.jsonl").open("w") as file:
        for step in range(60_000):
            metrics = {f"train/figure_{i}": step * 1.2345678 + i for i in range(10)}
            file.write(json.dumps({"time": "2026-01-02T03:04:05+00:00", "step": step, "epoch": 0, **metrics}) + "\n")
    main(["a"])
    assert (run.folder / "report.html").stat().st_size < 700_000


def test_the_report_imports_neither_torch_nor_lightning(runs):
    killed_and_resumed(runs / "a")
    program = (
        "import runpy, sys\n"
        "sys.argv = ['train.py', 'report', 'a']\n"
        "runpy.run_path(sys.path[0] + '/train.py', run_name='__main__')\n"
        "print('heavy:', sorted({'torch', 'lightning', 'numpy', 'jsonargparse', 'rich', 'psutil'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n" + program]
    done = subprocess.run(command, cwd=runs.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: ['psutil']"  # engine.io.atomic_file asks it whose file it is
    assert (runs / "a" / "report.html").is_file()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("metrics.jsonl", '{"step": 4, "epoch": 0, "ti', "metrics.jsonl, line {last}: not a whole record, skipped"),
        ("metrics.jsonl", "[]\n\n{}\n", "metrics.jsonl, line {last}: not a whole record, skipped, and 1 more of this"),
        ("log.jsonl", '{"time": "x", "event": ', "log.jsonl, line {last}: not a whole record, skipped"),
        ("log-1.jsonl", '{"event": 7}', "log-1.jsonl, line {last}: not a whole record, skipped"),
        ("examples/val-9.json", "[", "examples: files skipped that are no previews: 1"),
    ],
)
def test_what_is_malformed_in_a_record_is_named(runs, capsys, name, content, expected):
    killed_and_resumed(runs / "a", 1)
    path = runs / "a" / name
    path.parent.mkdir(exist_ok=True)
    lines = path.read_bytes().count(b"\n") if path.exists() else 0
    with path.open("a", encoding="utf-8") as file:
        file.write(content)
    main(["a"])
    printed = capsys.readouterr()
    assert (runs / "a/report.html").is_file()
    assert len(printed.err.splitlines()) == 1
    assert f"report: runs/a/{expected.format(last=lines + 1)}" in printed.err.replace(str(runs), "runs")


def test_trials_whose_runs_are_gone_are_named(runs, capsys):
    trials = [TrialSummary(number, f"trial-{number:04}", "complete", 0.5, 3, {}) for number in (0, 1)]
    trials.append(TrialSummary(2, "trial-0002", "failed", None, None, {}, "refused before its training"))
    (runs / "study").mkdir(parents=True)
    write_summary(StudySummary("val/ndcg@10", "maximize", [], trials, ""), runs / "study")
    error = error_of(capsys, "study")
    assert "found no run directory of a trial, expected trial-0000, trial-0001, which have trained; restore" in error
    Recorded(runs / "study/trial-0001")
    main(["study"])
    assert "trials without a run directory are skipped (1 of 2): trial-0000" in capsys.readouterr().err


@pytest.mark.parametrize("name", [5, None, "", "..", "../trial", "/tmp", "a/b"])
def test_a_summary_names_folders_of_its_own(runs, capsys, name):
    assert "not a summary of a study (name: found" in error_of(capsys, *malformed(runs, trials=[trial(name=name)]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trials": [{"value": "0.5"}]}, "value: found '0.5', expected a number"),
        ({"trials": [{"step": True}]}, "step: found True, expected a number"),
        ({"trials": [{"number": None}]}, "number: found None, expected a number"),
        ({"parameters": 5}, "parameters: found 5, expected a list of objects with a key"),
        ({"parameters": ["a"]}, "parameters: found .'a'., expected a list of objects with a key"),
    ],
)
def test_values_of_another_type_in_a_summary_are_named(runs, capsys, fields, message):
    if "trials" in fields:
        fields = {"trials": [trial(**changed) for changed in fields["trials"]]}
    error = error_of(capsys, *malformed(runs, **fields))
    assert re.search(message, error)
    assert error.count("\n") == 1


def trial(**fields):
    return {**TrialSummary(0, "trial-0000", "complete", 0.5, 3, {})._asdict(), **fields}


def malformed(runs, **fields):
    """Writes a study with these fields; returns its name."""
    Recorded(runs / "study/trial-0000")
    whole = {**StudySummary("val/ndcg@10", "maximize", [], [], "").fields(), "trials": [trial()], **fields}
    (runs / "study/study.json").write_text(json.dumps(whole), encoding="utf-8")
    return ["study"]
