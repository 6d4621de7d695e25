"""Defines types of questions: their subject, right answer and wrong options.

There are always four options, and each is equally likely to be right given the question and all options: parts are
drawn independently, and the part that the question is about is drawn among them.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from datamodules.document_qa.manuals.devices import Chapter, Part, cell_names, choose, choose_one
from datamodules.document_qa.manuals.settings import COLUMNS, LISTED, ManualSettings, PageKind
from datamodules.document_qa.types.question import UNANSWERABLE, AnswerType, Source

OPTIONS = 4

UNANSWERABLE_KIND = "unanswerable"

UNANSWERABLE_BASES = ("material", "function", "name", "value")
"""Kinds whose wordings unanswerable questions use, in the same proportions, so that the wording reveals nothing."""

RELATIONS = ("left", "right", "above", "below")


class QuestionContent(NamedTuple):
    """The content of a question."""

    wording: str  # key of WORDINGS
    slots: Mapping[str, str | int]
    answer: str
    others: tuple[str, ...]  # wrong answers, of which three become options
    number: int = 0  # the number of the part that the answer is about; 0 if it is about none or several


class ManualQuestionType(NamedTuple):
    """A kind of question."""

    name: str
    source: Source
    pages: tuple[PageKind, ...]  # pages that the answer follows from; a page mention names the first
    answer_type: AnswerType
    ask: Callable[[np.random.Generator, Chapter, ManualSettings], QuestionContent]


def _ask_about_part(wording: str, attribute: Callable[[Part], str], **more: str) -> Callable[..., QuestionContent]:
    """Ask about a part by its number."""

    def ask(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
        part, *others = choose(random, chapter.parts, OPTIONS)
        slots: dict[str, str | int] = {"number": part.number, "title": chapter.title, **more}
        return QuestionContent(wording, slots, attribute(part), tuple(map(attribute, others)), part.number)

    return ask


def _at_place(wording: str, attribute: Callable[[Part], str]) -> Callable[..., QuestionContent]:
    """Ask about a part by its position in the drawing."""

    def ask(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
        part, *others = choose(random, chapter.parts, OPTIONS)
        slots = {"place": cell_names(settings.grid)[part.cell], "title": chapter.title}
        return QuestionContent(wording, slots, attribute(part), tuple(map(attribute, others)), part.number)

    return ask


def _ask_about_column(by_place: bool) -> Callable[..., QuestionContent]:
    """Ask for a value in the table."""

    def ask(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
        column = choose_one(random, chapter.columns)
        about = _at_place("value_at", lambda part: part.values[column]) if by_place else None
        about = about or _ask_about_part("value", lambda part: part.values[column])
        content = about(random, chapter, settings)
        return content._replace(slots={**content.slots, "column": column})

    return ask


def _place_of(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
    names = cell_names(settings.grid)
    return _ask_about_part("place_of", lambda part: names[part.cell])(random, chapter, settings)


def _relation(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
    """Ask for the relation of two parts in the same row or column, so that exactly one word is right."""
    pairs: dict[str, list[tuple[Part, Part]]] = {word: [] for word in RELATIONS}
    for part in chapter.parts:
        for other in chapter.parts:
            (row, column), (other_row, other_column) = (divmod(each.cell, settings.grid) for each in (part, other))
            if row == other_row and column != other_column:
                pairs["left" if column < other_column else "right"].append((part, other))
            if column == other_column and row != other_row:
                pairs["above" if row < other_row else "below"].append((part, other))
    # The word is drawn first, so that all words are equally frequent whatever the drawing.
    words = [word for word in RELATIONS if pairs[word]]
    word = choose_one(random, words)
    part, other = choose_one(random, pairs[word])
    slots: dict[str, str | int] = {"number": part.number, "other": other.number, "title": chapter.title}
    return QuestionContent("relation", slots, word, tuple(other for other in RELATIONS if other != word))


def _material_of_name(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
    part, *others = choose(random, chapter.parts, OPTIONS)
    slots = {"name": part.name, "title": chapter.title}
    materials = tuple(other.material for other in others)
    return QuestionContent("material_of_name", slots, part.material, materials, part.number)


def _number_of_name(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
    part, *others = choose(random, chapter.parts, OPTIONS)
    slots = {"name": part.name, "title": chapter.title}
    numbers = tuple(str(other.number) for other in others)
    return QuestionContent("number_of_name", slots, str(part.number), numbers, part.number)


def state_part(content: QuestionContent) -> QuestionContent:
    """Return the question with an answer that states the part, and without options."""
    attribute = content.slots.get("column", "material")
    return content._replace(answer=f"{content.number}, {attribute} {content.answer}", others=())


def _drawing(random: np.random.Generator, chapter: Chapter, settings: ManualSettings) -> QuestionContent:
    names = cell_names(settings.grid)
    parts = sorted(chapter.parts, key=_cell)
    descriptions = (f"{names[part.cell]}: {part.colour} {part.shape} {part.number}" for part in parts)
    return QuestionContent("drawing", {"title": chapter.title}, ", ".join(descriptions), ())


def ask_unanswerable(
    random: np.random.Generator, base: ManualQuestionType, chapter: Chapter, settings: ManualSettings
) -> QuestionContent:
    """Make a question unanswerable: ask about a part that the chapter lacks, or a column that its table lacks."""
    content = base.ask(random, chapter, settings)
    if "column" in content.slots and random.random() < 0.5:
        column = choose_one(random, [column for column in COLUMNS if column not in chapter.columns])
        # The chapter's parts have no value in this column, so the options are drawn as a table draws its values.
        values = choose(random, LISTED, OPTIONS - 1)
        others = tuple(f"{value} {COLUMNS[column]}" for value in values)
        return content._replace(slots={**content.slots, "column": column}, answer=UNANSWERABLE, others=others)
    existing = {part.number for part in chapter.parts}
    number = choose_one(random, [number for number in range(1, settings.highest_number + 1) if number not in existing])
    return content._replace(slots={**content.slots, "number": number}, answer=UNANSWERABLE)


def _cell(part: Part) -> int:
    return part.cell


KINDS: dict[str, ManualQuestionType] = {
    kind.name: kind
    for kind in (
        ManualQuestionType(
            "material", "text", ("text",), "string", _ask_about_part("material", lambda part: part.material)
        ),
        ManualQuestionType(
            "function", "text", ("text",), "string", _ask_about_part("function", lambda part: part.function)
        ),
        ManualQuestionType("name", "table", ("table",), "string", _ask_about_part("name", lambda part: part.name)),
        ManualQuestionType("value", "table", ("table",), "number", _ask_about_column(by_place=False)),
        ManualQuestionType(
            "colour_at", "figure", ("figure",), "string", _at_place("colour_at", lambda part: part.colour)
        ),
        ManualQuestionType("shape_at", "figure", ("figure",), "string", _at_place("shape_at", lambda part: part.shape)),
        ManualQuestionType(
            "number_at", "figure", ("figure",), "number", _at_place("number_at", lambda part: str(part.number))
        ),
        ManualQuestionType("place_of", "figure", ("figure",), "string", _place_of),
        ManualQuestionType("relation", "figure", ("figure",), "relation", _relation),
        ManualQuestionType("value_at", "hop", ("figure", "table"), "number", _ask_about_column(by_place=True)),
        ManualQuestionType(
            "material_at", "hop", ("figure", "text"), "string", _at_place("material_at", lambda part: part.material)
        ),
        ManualQuestionType("material_of_name", "cross", ("text", "table"), "string", _material_of_name),
    )
}

DRAWING = ManualQuestionType("drawing", "figure", ("figure",), "string", _drawing)
"""Asks to describe a drawing, for a separate training stage of the vision tower. It has no options."""

NAMED_KINDS: dict[str, ManualQuestionType] = {
    kind.name: kind
    for kind in (DRAWING, ManualQuestionType("number_of_name", "table", ("table",), "number", _number_of_name))
}
"""Kinds that are asked only if `task_mix` names them. The built-in tokenizer is trained on texts of all KINDS, so an
older checkpoint would not fit if there were more of them."""
