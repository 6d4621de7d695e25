"""Tests the command line of the benchmark and what it writes."""

import json
from pathlib import Path

import pytest

import benchmarks.recommender.__main__ as command
from benchmarks.recommender import comparisons, report
from benchmarks.recommender.comparisons import COMPARISONS, Comparison
from benchmarks.recommender.measure import Measured, Measurement
from benchmarks.recommender.training_steps import attention_alone


def _measured(cpu: float, memory: int, waited: float = 0.0) -> Measured:
    return Measured([Measurement(cpu, 2 * cpu, waited), Measurement(cpu, 2 * cpu, waited)], memory, 0)


def _compare(goals: dict[str, float]) -> Comparison:
    return Comparison("name", "title", "step", {}, goals)


def test_a_summary_has_ratios_and_says_which_goals_are_met() -> None:
    measured = {"naive": _measured(4.0, 80 << 20), "ours": _measured(0.5, 20 << 20)}
    result = report.summary(_compare({"cpu": 8, "memory": 8}), measured)
    assert "times_less" not in result["sides"][0]
    assert result["sides"][1]["times_less"] == {"cpu": [8, 8], "wall": [8, 8], "memory": 4}
    assert [(goal["found"], goal["met"]) for goal in result["goals"]] == [(8, True), (4, False)]


@pytest.mark.parametrize(("waited", "met"), [(0.05, True), (0.06, False)])
def test_the_share_of_waiting_meets_its_goal(waited: float, met: bool) -> None:
    (goal,) = report.summary(_compare({"waiting": 0.05}), {"ours": _measured(1, 0, waited)})["goals"]
    assert goal["met"] is met
    assert goal["found"] == waited


def test_help_names_every_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert {comparison.name for comparison in COMPARISONS} <= words


def test_wrong_options_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="no comparison atention; there are attention-50"):
        command.main(["--only", "atention"])
    with pytest.raises(SystemExit):
        command.main(["--json", str(tmp_path / "missing" / "results.json")])
    assert "missing does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--repeats", "0"])


@pytest.mark.slow
def test_a_run_prints_its_comparisons_and_writes_results_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from functools import partial

    small = partial(attention_alone, length=20, batch_size=2)
    tiny = Comparison("tiny", "A tiny case", "pass", {"naive": partial(small, "naive"), "ours": partial(small, "ours")})
    monkeypatch.setattr(comparisons, "COMPARISONS", (tiny,))
    path = tmp_path / "results.json"
    command.main(["--repeats", "2", "--json", str(path)])
    printed = capsys.readouterr().out
    assert "A tiny case" in printed
    assert "CPU ms" in printed
    written = json.loads(path.read_text())
    assert written["threads"] == 1
    assert written["torch"]
    assert written["commit"]
    naive, ours = written["comparisons"][0]["sides"]
    assert len(naive["cpu"]) == 2
    assert ours["times_less"]["cpu"] == pytest.approx(
        [theirs / mine for theirs, mine in zip(naive["cpu"], ours["cpu"], strict=True)]
    )
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
