"""Tests the report that compares ablations."""

import json

import pytest

from datamodules.document_qa.reports.ablation_report import ablation_report, write_ablation_report
from datamodules.document_qa.reports.ablation_result import (
    AblationResult,
    hash_questions,
    read_results,
    select_result,
    write_result,
)
from datamodules.document_qa.reports.ablation_verdict import chance, verdict
from datamodules.document_qa.types.question import Question
from engine.statistics.confidence_intervals import MetricEstimate, wilson
from tests.support.outputs import browser

SAME, OTHER = {"checkpoint": "best.ckpt (a)"}, {"checkpoint": "best.ckpt (b)"}


def share(value, questions=100):
    right = round(value * questions)
    return MetricEstimate(right / questions, questions, *wilson(right, questions))


def result(ablate, identity=SAME, blind=0.25, **accuracy):
    overall = sum(accuracy.values()) / len(accuracy)
    accuracies = {
        "": share(overall, 100 * len(accuracy)),
        **{source: share(value) for source, value in accuracy.items()},
    }
    return AblationResult(
        ablate, identity, accuracies, dict.fromkeys(accuracies, share(blind)), dict.fromkeys(accuracies, 0.25)
    )


WHOLE = result("none", text=0.97, table=0.95, figure=0.6, none=0.8)


@pytest.mark.parametrize(
    ("ablated", "source", "expected", "right", "text"),
    [
        (result("figure", figure=0.27), "figure", "chance", True, "falls to chance"),
        (result("figure", figure=0.05), "figure", "chance", True, "falls to chance"),
        (result("figure", figure=0.5), "figure", "chance", False, "stays above chance"),
        (result("figure", text=0.93), "text", "as before", True, "stays"),
        (result("figure", text=0.6), "text", "as before", False, "falls by 37.0 points"),
        (result("table", figure=0.9), "figure", "as before", False, "rises by 30.0 points"),
        (result("shuffled_figure", figure=0.25), "figure", "chance", True, "falls to chance"),
        (result("question_only", text=0.3), "text", "chance", True, "falls to chance"),
    ],
)
def test_verdicts_follow_from_the_intervals(ablated, source, expected, right, text):
    assert verdict(WHOLE, ablated, source) == (expected, right, text)


def test_an_accuracy_at_chance_gives_no_evidence():
    unablated = result("none", figure=0.3)
    assert verdict(unablated, result("figure", figure=0.25), "figure") == ("chance", False, "never above chance")
    leaking = result("none", blind=0.9, figure=0.9)
    assert not verdict(leaking, result("figure", blind=0.9, figure=0.9), "figure").right
    assert chance(leaking, "figure") == 0.9
    assert chance(unablated, "figure") == 0.25


def test_answers_without_documents_are_measured_by_dice_and_custom_not_by_themselves():
    """The same prompts are the baseline question_only of every other test: they can never be above that."""
    leaking = result("question_only", blind=0.6, text=0.6)
    assert verdict(WHOLE, leaking, "text") == ("chance", False, "stays above chance")
    majority_score = leaking._replace(majority={"text": 0.6})
    assert verdict(WHOLE, majority_score, "text") == ("chance", True, "falls to chance")
    assert chance(majority_score._replace(question_only={}), "text") == 0.6


def test_an_unclear_drop_is_no_fall_to_chance():
    unablated, ablated = (result(name, figure=value) for name, value in (("none", 0.36), ("figure", 0.33)))
    text = verdict(unablated._replace(question_only={}), ablated._replace(question_only={}), "figure")
    assert text == ("chance", False, "does not clearly fall")


def test_few_questions_tell_nothing():
    few = result("figure", figure=0.25)._replace(accuracy={"figure": share(0.25, 20), "text": share(0.95, 20)})
    assert verdict(WHOLE, few, "figure") == ("chance", None, "too few questions")
    assert verdict(WHOLE, few, "text") == ("as before", None, "too few questions")
    unclear = "too few questions: text, figure"
    assert ablation_report([WHOLE, few], "figure").verdict(few) == unclear


def test_nothing_is_reported_for_unanswerable_questions_and_questions_not_asked():
    ablated = result("figure", none=0.1, table=0.9)
    assert verdict(WHOLE, ablated, "none") is None
    assert verdict(WHOLE, ablated, "hop") is None


def test_results_come_back_as_they_were_written(tmp_path):
    for ablated in (result("table", table=0.25), WHOLE):
        write_result(tmp_path, ablated)
    (tmp_path / "figure_report.json").write_text("{}")  # another report's
    assert read_results(tmp_path) == [WHOLE, result("table", table=0.25)], "in the order of the ablations"
    (tmp_path / "figure.json").write_text('{"ablate": "figure"}')
    with pytest.raises(ValueError, match="figure.json is not an ablation result"):
        read_results(tmp_path)


def test_the_result_keeps_accuracies_and_baselines():
    results = {
        "accuracy": share(0.5),
        "table/accuracy": share(0.4),
        "table/loss": MetricEstimate(1.0, 3),
        "baseline/question_only/accuracy": share(0.2),
        "baseline/random/table/accuracy": MetricEstimate(0.25, 100),
        "baseline/majority/table/accuracy": MetricEstimate(0.3, 100),
    }
    kept = select_result("table", SAME, results)
    assert kept.accuracy == {"": share(0.5), "table": share(0.4)}
    assert kept.question_only == {"": share(0.2)}
    assert kept.random == {"table": 0.25}
    assert kept.majority == {"table": 0.3}


def test_questions_are_the_same_by_what_is_asked():
    question = Question("a", "?", "d", ("x", "y"), "x", 0)
    assert hash_questions([question]) == hash_questions([question._replace(where="other.jsonl, line 3")])
    others = {"right": 1, "also_right": ("z",), "answer_type": "choice", "source": "table"}
    for field, other in others.items():
        assert hash_questions([question]) != hash_questions([question._replace(**{field: other})])


def test_old_results_are_named_and_not_mixed_in():
    old = result("table", OTHER, table=0.95)
    report = ablation_report([WHOLE, result("figure", text=0.97, table=0.95, figure=0.25), old], "figure")
    assert [result.ablate for result in report.results] == ["none", "figure"]
    assert report.others == [old]
    assert report.verdict(report.results[1]) == "as expected"
    table = report.table()
    assert "without figures" in table
    assert "without tables" not in table
    assert "25.0 (18–34)" in table
    only = ablation_report([WHOLE, old], "table")
    assert only.whole is None
    assert "none" in only.verdict(old)


@browser.with_browser
def test_the_page_shows_the_ablated_results(tmp_path):
    for ablated in (WHOLE, result("figure", text=0.6, table=0.95, figure=0.25), result("text", OTHER, text=0.2)):
        write_result(tmp_path / "ablation", ablated)
    write_ablation_report(tmp_path, tmp_path / "ablation", "figure", {"run": "<b>mine</b>"})
    assert json.loads((tmp_path / "ablation.json").read_text())["rows"][1]["title"] == "without figures"
    (tmp_path / "browser").mkdir()
    with browser.Browser(tmp_path / "browser") as page:
        page.open((tmp_path / "ablation.html").as_uri())
        text = page.run("document.body.innerText")
        assert "not as expected: text falls by 37.0 points" in text
        assert "falls to chance" in text
        assert "without texts: checkpoint best.ckpt (b)" in text
        assert "<b>mine</b>" in text
        assert page.complaints == []
