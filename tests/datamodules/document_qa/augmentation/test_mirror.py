"""Tests mirrored figures and the direction words of their questions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from datamodules.document_qa.augmentation.mirror import Direction, MirroredDocument, mirror_figures, mirror_words
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.types.question import Question

FIGURE = Chunk(1, "figure", (0.25, 0.5, 0.75, 1.0), "")
WORDS = [
    "left",
    "Right",
    "LEFT",
    "of",
    "above",
    "Below",
    "top",
    "bottom",
    "upper",
    "lower",
    "clockwise",
    "counterclockwise",
    "左",
    "右",
    "上",
    "下",
    "侧",
    "方",
    "顺时针",
    "逆时针",
    "3",
    "leftover",
    "upright",
    "topmost",
]


class Drawing:
    """Its page is red on the left and blue on the right, dark above and light below."""

    name = "drawing"

    def __init__(self, caption: str = "Figure 1") -> None:
        self.pages = [Page(1, (Chunk(1, "text", (0, 0, 1, 0.2), caption), FIGURE))]

    def picture(self, page: int) -> Image.Image:
        pixels = np.zeros((40, 40, 3), np.uint8)
        pixels[:, :20, 0] = pixels[:, 20:, 2] = np.arange(40)[:, None] * 5 + 20
        return Image.fromarray(pixels)

    def figure(self, chunk: Chunk) -> Image.Image:
        return self.picture(1).crop((10, 20, 30, 40))


def asked(question: str, *options: str, source: Any = "figure") -> Question:
    return Question("1", question, "drawing", options, options[0] if options else "the left one", 0, source=source)


@given(st.lists(st.sampled_from(WORDS)), st.sampled_from(["horizontal", "vertical"]), st.sampled_from([" ", "-", ", "]))
def test_applied_twice_it_is_the_identity(words: list[str], direction: Direction, between: str) -> None:
    text = between.join(words)
    assert mirror_words(mirror_words(text, direction), direction) == text


@pytest.mark.parametrize(
    ("text", "horizontal", "vertical"),
    [
        ("left of part 3", "right of part 3", "left of part 3"),
        ("Above and to the RIGHT", "Above and to the LEFT", "Below and to the RIGHT"),
        ("at the top left", "at the top right", "at the bottom left"),
        ("turns clockwise", "turns counterclockwise", "turns counterclockwise"),
        ("the upright lever", "the upright lever", "the upright lever"),
        ("部件4位于部件5的左上方", "部件4位于部件5的右上方", "部件4位于部件5的左下方"),
        ("逆时针", "顺时针", "顺时针"),
    ],
)
def test_directions_are_what_they_are_in_the_mirror(text: str, horizontal: str, vertical: str) -> None:
    assert mirror_words(text, "horizontal") == horizontal
    assert mirror_words(text, "vertical") == vertical


@pytest.mark.parametrize("direction", ["horizontal", "vertical"])
def test_question_options_and_answer_turn_with_the_figure(direction: Direction) -> None:
    question = asked("Where is the valve?", "top left", "bottom right", "top right", "bottom left")
    (other,), document = mirror_figures([question], Drawing(), direction, [1])
    assert other.right == 0
    assert other.options[0] == other.answer
    assert sorted(other.options) == sorted(question.options)
    assert other.answer == {"horizontal": "top right", "vertical": "bottom left"}[direction]
    # The mirrored figure has the content of the left side on the right.
    axis = 1 if direction == "horizontal" else 0
    figure = np.asarray(document.figure(FIGURE))
    assert np.array_equal(figure, np.flip(np.asarray(Drawing().figure(FIGURE)), axis))
    picture, was = np.asarray(document.picture(1)), np.asarray(Drawing().picture(1))
    assert np.array_equal(picture[20:, 10:30], figure)
    assert np.array_equal(picture[:20], was[:20])
    assert np.array_equal(picture[:, :10], was[:, :10])


@pytest.mark.parametrize(
    "question",
    [
        asked("Where is the valve?", "left", "right", source="text"),
        asked("Where is the valve?", "left", "right", source="hop"),
        asked("Where is the valve?", "left", "right", source=None),
        asked("Which part is in the second row?", "left", "right"),
        asked("Which answer is right?", "left", "right"),
        asked("How much is left?", "left", "right"),
        asked("质量在5 kg左右的部件在哪一侧？", "左", "右"),
        asked("下列哪个部件在左侧？", "泵", "阀"),
    ],
)
def test_ambiguous_directions_are_not_mirrored(question: Question) -> None:
    document = Drawing()
    assert mirror_figures([question], document, "horizontal", [1]) == ([question], document)
    assert mirror_figures([asked("Where?", "left"), question], document, "vertical", [1])[1] is document


def test_a_page_that_names_directions_is_not_mirrored() -> None:
    document = Drawing("The left valve is the inlet.")
    question = asked("Where is the valve?", "left", "right")
    assert mirror_figures([question], document, "horizontal", [1])[1] is document
    assert isinstance(mirror_figures([question], document, "horizontal", [])[1], MirroredDocument)
    assert isinstance(mirror_figures([question], document, "vertical", [1])[1], MirroredDocument)
