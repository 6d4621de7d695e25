"""Tests all metrics of an evaluation."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.document_qa.batch import AnswerRecord, Evidence, ModelAnswer
from datamodules.document_qa.grading.baselines import (
    MostFrequentAnswers,
    first_questions,
    majority_score,
    most_frequent_answers,
    random_score,
)
from datamodules.document_qa.grading.evaluation_metrics import compute_metrics, metric_values
from datamodules.document_qa.grading.grade import grade
from datamodules.document_qa.types.question import UNANSWERABLE, Question
from tests.support.families.tiny_documents import TinyQuestions

CHOICE = Question("c", "which?", "d", ("x", "y", "z"), "y", 1, "choice", (2,), "table")
NUMBER = Question("n", "how much?", "d", (), "3.5 A", None, "number", (1, 4), "text")
RELATION = Question("r", "where is 1?", "d", (), "1 is left of 2", None, "relation", (3,), "figure")
STRING = Question("s", "of what?", "d", (), "steel", None, "string", (1,), "text", also_right=("stainless steel",))
NOTHING = Question("u", "who?", "d", (), UNANSWERABLE, None, "unanswerable", (), "none")
ASKED = (CHOICE, NUMBER, RELATION, STRING, NOTHING)


def choice(best, options=3, confidence=0.8):
    return ModelAnswer("", tuple(-1.0 if index == best else -3.0 for index in range(options)), confidence, 2.0, 4)


def words(text, confidence=0.5):
    return ModelAnswer(text, (), confidence, 1.0, 2)


RECORDS = [
    AnswerRecord(0, choice(1), choice(0), (2, 1), (1, 2), (Evidence(2, "table", (0, 0, 1, 1), 0.5),)),
    AnswerRecord(1, words("3500 mA"), words("3.5"), (3, 1, 4), (1, 3)),
    AnswerRecord(2, words("2 is to the right of 1"), words("1 is right of 2"), (1, 2, 5, 4, 3), (1, 2)),
    AnswerRecord(3, words("Stainless steel."), words("iron"), (1,), (1,)),
    AnswerRecord(4, words("The document does not say."), words("3.5 A"), (1,), (1,)),
]


def test_a_summary_equals_that_by_hand():
    metrics = metric_values(ASKED.__getitem__, RECORDS, MostFrequentAnswers(1, "3.5 A"))
    assert metrics["accuracy"] == 1.0
    assert metrics["text/accuracy"] == 1.0
    assert metrics["choice_accuracy"] == 1.0
    assert metrics["baseline/question_only/accuracy"] == 0.0
    assert metrics["baseline/random/accuracy"] == pytest.approx(1 / 15)
    assert metrics["baseline/random/table/accuracy"] == pytest.approx(1 / 3)
    assert metrics["baseline/majority/accuracy"] == pytest.approx(2 / 5)
    assert metrics["exact_match"] == 0.5, "the quantity and the relation are right in other words"
    assert metrics["numeric_accuracy"] == metrics["relation_accuracy"] == metrics["abstention_f1"] == 1.0
    assert metrics["loss"] == pytest.approx(6 / 12)
    assert metrics["perplexity"] == pytest.approx(math.exp(0.5))
    assert metrics["page_recall@1"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert metrics["page_recall@4"] == pytest.approx((1 + 1 + 0 + 1) / 4)
    assert metrics["context_recall"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert metrics["evidence_page_accuracy"] == 1.0
    assert metrics["calibration_error"] == pytest.approx((4 * 0.5 + 0.2) / 5)


def test_a_summary_has_only_metrics_that_apply():
    metrics = metric_values(
        [CHOICE, CHOICE].__getitem__, [RECORDS[0], RECORDS[0]._replace(sample=1, ranked=(), evidence=())]
    )
    own = {name for name in metrics if "/" not in name}
    assert own == {
        "accuracy",
        "balanced_accuracy",
        "calibration_error",
        "page_recall@1",
        "page_recall@4",
        "context_recall",
        "evidence_page_accuracy",
        "loss",
        "perplexity",
    }
    assert not any("majority" in name for name in metrics), "the most frequent answers are unknown"
    unknown = CHOICE._replace(answer=None, right=None, evidence_pages=())
    assert (
        set(metric_values(lambda sample: unknown, [AnswerRecord(0, ModelAnswer("", (-1.0, -2.0, -3.0), 0.5))])) == set()
    )


def test_a_missed_page_lowers_the_recall():
    records = [RECORDS[0], RECORDS[0]._replace(sample=1, ranked=(), pages=())]
    metrics = metric_values([CHOICE, CHOICE].__getitem__, records)
    assert metrics["page_recall@1"] == metrics["page_recall@4"] == metrics["context_recall"] == 0.5
    nothing = metric_values([CHOICE, CHOICE].__getitem__, records[1:])
    assert nothing["page_recall@1"] == nothing["context_recall"] == nothing["table/context_recall"] == 0.0
    assert not any("recall" in name for name in metric_values([CHOICE].__getitem__, records[:1], retrieved=False))


def test_an_answer_without_a_number_for_its_confidence_is_named():
    broken = RECORDS[1]._replace(whole=words("x", math.nan))
    with pytest.raises(ValueError, match=r"sample 1 \(question n, document d\).* nan, .*diverged.*earlier checkpoint"):
        metric_values(ASKED.__getitem__, [RECORDS[0], broken])


def test_a_right_answer_in_the_same_words_is_right():
    for question in ASKED[1:]:
        found = grade(question, words(question.answer))
        assert found.right == 1.0
        assert set(found.measures.values()) == {1.0}


def test_a_choice_of_no_answer_abstains():
    question = Question("c", "?", "d", ("a", UNANSWERABLE), UNANSWERABLE, 1, "choice")
    assert grade(question, choice(1, 2)).abstained
    assert not grade(question, choice(0, 2)).abstained


def test_the_tolerance_is_for_numbers():
    records = [AnswerRecord(0, words("3.6 A"))]
    asked = [NUMBER]
    assert metric_values(asked.__getitem__, records)["accuracy"] == 0.0
    assert metric_values(asked.__getitem__, records, relative_tolerance=0.03)["accuracy"] == 1.0


def test_the_most_frequent_option_and_answer_are_found():
    more = [CHOICE._replace(right=0), CHOICE, CHOICE._replace(right=0), STRING, STRING, STRING._replace(answer="a")]
    assert most_frequent_answers(more) == MostFrequentAnswers(0, "steel")
    assert most_frequent_answers([]) == MostFrequentAnswers(None, None)
    assert most_frequent_answers([CHOICE, CHOICE._replace(right=0)]).option == 0, "of equals the first letter"
    assert len(list(first_questions(TinyQuestions(0, 12, together=2)))) == 24


def test_custom_does_not_know_which_questions_have_no_answer():
    most_frequent = most_frequent_answers([NUMBER, NUMBER, STRING, NOTHING])
    assert majority_score(NUMBER, most_frequent) == 1.0
    assert majority_score(NOTHING, most_frequent) == majority_score(STRING, most_frequent) == 0.0


def test_the_right_words_are_right_by_whatever_letter():
    twice = CHOICE._replace(options=("y", "y", "z"))
    assert [grade(twice, choice(index)).right for index in range(3)] == [1.0, 1.0, 0.0]
    assert random_score(twice) == pytest.approx(2 / 3)
    assert majority_score(twice, MostFrequentAnswers(0)) == 1.0
    assert [majority_score(twice, MostFrequentAnswers(index)) for index in (2, 5, None)] == [0.0, 0.0, 0.0]
    assert metric_values([twice].__getitem__, [AnswerRecord(0, choice(0))])["balanced_accuracy"] == 1.0


def test_a_right_answer_is_never_an_abstention():
    link = STRING._replace(answer="No data link")
    assert grade(link, words("no data link")).right == 1.0
    assert not grade(link, words("no data link")).abstained
    assert grade(link, words("no information")).abstained
    none = CHOICE._replace(options=("None", "One"), answer="None", right=0)
    assert not grade(none, choice(0, 2)).abstained


@given(st.permutations(range(len(RECORDS))), st.lists(st.integers(0, len(RECORDS) - 1), max_size=4))
def test_order_and_doubles_do_not_matter(order, doubles):
    """Ranks return records in any order, and padding repeats some of them."""
    most_frequent = MostFrequentAnswers(1, None)
    metrics = compute_metrics(ASKED.__getitem__, [RECORDS[index] for index in (*order, *doubles)], most_frequent)
    assert metrics == compute_metrics(ASKED.__getitem__, RECORDS, most_frequent)
    assert list(metrics) == list(compute_metrics(ASKED.__getitem__, RECORDS, most_frequent))
