"""A sample is built of the pages that the retriever ranks, as far as the budget of the context allows."""

import logging
from typing import Any

import pytest

from datamodules.document_qa.samples.sample_builder import interleave
from engine.data.errors import BadSampleError
from tests.support.document_qa.sample_builders import sample_builder
from tests.support.families.tiny_documents import TinyQuestions


@pytest.mark.parametrize("ablate", ["figure", "table", "text", "shuffled_figure"])
def test_an_ablation_shows_the_same_pages(ablate: Any) -> None:
    plain, without = (sample_builder(ablate=kind, kind="bm25", pages=2, tokens=60) for kind in ("none", ablate))
    for sample in range(8):
        reading, other = plain.build(0, sample), without.build(0, sample)
        assert other.choice.pages == reading.choice.pages
        assert other.ranked == reading.ranked
        context, rest = plain.context(reading), without.context(other)
        if ablate == "shuffled_figure":
            assert rest.text == context.text
        else:
            assert rest.chunks == tuple(chunk for chunk in context.chunks if chunk.kind != ablate)


def test_evidence_is_shown_in_training_whatever_the_retriever_ranks() -> None:
    for sample in (0, 1, 2):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        built = sample_builder(kind="bm25", pages=1, evidence_first=True).build(0, sample)
        assert set(question.evidence_pages) <= set(built.choice.pages)


@pytest.mark.parametrize("pages", [1, 2])
def test_evidence_adds_no_page(pages: int) -> None:
    for sample in range(8):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        ranked = sample_builder(kind="bm25", pages=pages, evidence_first=True).build(0, sample).ranked
        assert len(ranked) == pages
        assert ranked[: len(question.evidence_pages)] == question.evidence_pages


def test_several_questions_share_the_pages_of_all() -> None:
    assert interleave([[3, 1], [2, 3, 4], []]) == (3, 2, 1, 4)


def test_a_budget_that_holds_no_page_is_an_error_or_no_document() -> None:
    with pytest.raises(BadSampleError, match=r"1-0-0: device-1000: none of 3 pages fits .*tokens 5.*shortest has \d+"):
        sample_builder(tokens=5).build(0, 0)
    source = sample_builder(tokens=5, empty="ask")
    assert source.context(source.build(0, 0)).text == ""


def test_a_retriever_that_finds_nothing_is_named() -> None:
    source = sample_builder()
    source.retriever.rank = lambda document, question: []  # type: ignore[method-assign]
    with pytest.raises(BadSampleError, match="has 3 pages, and the retriever ranks none of them"):
        source.build(0, 0)


def test_omitted_pages_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    source = sample_builder(tokens=45)
    with caplog.at_level(logging.INFO, "lockstep"):
        for sample in range(4):
            source.context(source.build(0, sample))
    (output,) = [record.getMessage() for record in caplog.records]
    assert "data.init_args.context drops 2 of 3 ranked pages" in output
