"""Metrics, reports and predictions of documents are the same on any world size, and the reports' counts add up."""

import json

import pytest
import yaml

from tests.support.families.tiny_documents import write_config
from tests.support.outputs.jsonl import read_jsonl

REPORTS = ("test_report.json", "ablation.json", "ablation/none.json", "prediction_report.json", "predictions.jsonl")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_reports_are_the_same_on_any_number_of_processes(lockstep, team, tmp_path):
    more = {"data": {"init_args": {"size": 10, "evaluation_batch_size": 2, "option_orders": 2}}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    options = [*write_config(tmp_path), "--config", str(tmp_path / "more.yaml"), "--model.evidence_questions", "4"]
    folder = lockstep("fit", *options, "--trainer.max_steps", "1", name="run").folder
    written = []
    for processes in (1, 3):
        (folder / "metrics.jsonl").unlink()
        for command in ("test", "predict"):
            if processes == 1:
                lockstep(command, *options, name="run")
                continue
            team(command, *options, name="run", processes=processes).succeeded(120)
        logged = metrics_of_test(folder)
        adds_up(folder, logged)
        written.append((logged, {name: (folder / name).read_bytes() for name in REPORTS}))
    assert written[0] == written[1]
    assert "test/loss" in written[0][0]
    assert written[0][1]["predictions.jsonl"].count(b"\n") == 10


def metrics_of_test(folder):
    lines = read_jsonl(folder / "metrics.jsonl")
    return {name: value for line in lines for name, value in line.items() if name.startswith("test/")}


def adds_up(folder, logged):
    """The logged metrics equal those counted from the report's answers, without the summary's code."""
    records = json.loads((folder / "test_report.json").read_text(encoding="utf-8"))["records"]
    assert [record["sample"] for record in records] == list(range(10))
    for source in ("text", "table", "figure", "none"):
        of_source = [record for record in records if record["task"] == source]
        for name, errors in (("accuracy", "errors"), ("baseline/question_only/{}accuracy", "blind_errors")):
            right = sum(record[errors] == [] for record in of_source)
            key = name.format(f"{source}/") if "{}" in name else f"{source}/{name}"
            assert logged[f"test/{key}"] == pytest.approx(right / len(of_source)), key
    assert logged["test/accuracy"] == pytest.approx(sum(record["errors"] == [] for record in records) / 10)
    assert logged["test/baseline/random/figure/accuracy"] == pytest.approx(1 / len(records[2]["options"]))
    found = [
        len({*record["ranked"][:1]} & {*record["evidence_pages"]}) for record in records if record["evidence_pages"]
    ]
    assert logged["test/page_recall@1"] == pytest.approx(sum(found) / len(found))
    explained = [record for record in records[:4] if record["evidence_pages"]]
    hits = [record["evidence"]["page"] in record["evidence_pages"] for record in explained]
    assert logged["test/evidence_page_accuracy"] == pytest.approx(sum(hits) / len(hits))
