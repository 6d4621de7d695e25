"""Tests added pages that do not answer the question."""

from typing import Any

import numpy as np

from datamodules.document_qa.augmentation.distractor_pages import add_distractor_pages
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import Question
from tests.support.families.tiny_documents import TinyDocument

QUESTION = Question("1", "What is the mass of part 7?", "pump", ("3 kg", "5 kg"), "3 kg", 0)
BOX = (0.1, 0.1, 0.9, 0.9)


class Other:
    """Page 1 is about the same part, page 2 about something else, page 3 has a figure, page 4 nothing."""

    name = "other"
    pages = [
        Page(1, (Chunk(1, "text", BOX, "The mass of part 7 is 9 kg."),)),
        Page(2, (Chunk(2, "text", BOX, "Store dry. Never wash with petrol."), Chunk(2, "table", BOX, "a | b"))),
        Page(3, (Chunk(3, "figure", BOX, ""),)),
        Page(4, ()),
    ]

    def picture(self, page: int) -> Any:
        return f"other page {page}"

    def figure(self, chunk: Chunk) -> Any:
        return f"other figure on {chunk.page}"


def drawn(ranked: list[int], most: int = 2, tries: int = 60, question: Question = QUESTION) -> list[Any]:
    found = []
    for key in range(tries):
        random = np.random.Generator(np.random.Philox(key=key))
        found.append(add_distractor_pages([question], TinyDocument(3), ranked, Other, most, random))
    return found


def test_distractors_are_ranked_last_and_limited_in_number() -> None:
    for document, ranked in drawn([2]):
        assert ranked[0] == 2
        assert len(ranked) <= 3
        assert len(set(ranked)) == len(ranked)
        assert all(1 <= page <= len(document.pages) for page in ranked)
    assert {len(ranked) for _, ranked in drawn([2])} == {1, 2, 3}
    assert all(ranked == (2,) for _, ranked in drawn([2], most=0))


def test_distractor_pages_do_not_speak_of_the_question() -> None:
    lengthened = [document for document, _ in drawn([1, 2, 3]) if len(document.pages) > 3]
    assert lengthened
    for document in lengthened:
        (page,) = document.pages[3:]
        assert page.number == 4
        assert [chunk.page for chunk in page.chunks] == [4, 4]
        assert page.chunks[0].text == "Store dry. Never wash with petrol."
        assert document.picture(4) == "other page 2"
        assert document.figure(page.chunks[1]) == "other figure on 2"
        assert document.pages[:3] == TinyDocument(3).pages
    # A word that it shares with an option is enough to leave it out.
    petrol = QUESTION._replace(options=("petrol", "oil"))
    assert all(len(document.pages) == 3 for document, _ in drawn([1, 2, 3], question=petrol))


def test_own_pages_that_the_retriever_did_not_name_are_shown_sometimes() -> None:
    added = {page for _, ranked in drawn([2]) for page in ranked[1:]}
    assert {1, 3} <= added
