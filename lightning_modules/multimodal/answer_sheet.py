"""Answers beside their pictures: one image to look at in TensorBoard, and the same as text."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.multimodal.fonts import length, pieces, printable

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PICTURE, TEXT, GAP = 224, 620, 14  # pixels: edge of a picture's place, width of the texts, and what lies between
SMALL = 128  # pixels that a smaller picture is enlarged to
LINE = 20  # pixels
LABEL = 84  # pixels of the column in which a line says what it is
LONGEST = 12  # lines of one text
PAPER, INK, FAINT, RULE = (255, 255, 255), (28, 33, 38), (91, 101, 112), (213, 218, 224)
RIGHT, WRONG = (10, 122, 75), (180, 35, 24)


_MARKDOWN = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_[]()!|~:"}
"""What has a meaning in Markdown or makes an address a link, as what it looks like."""


class ShownAnswer(NamedTuple):
    """What was asked, what is right, and what was said."""

    name: str
    pictures: Sequence["Image"]
    question: str
    truth: str
    answer: str
    blind: str
    right: bool | None  # None where it was not graded

    @property
    def verdict(self) -> str:
        return {True: "right", False: "WRONG", None: "not graded"}[self.right]


def draw(answers: Sequence[ShownAnswer]) -> NDArray[np.uint8]:
    """[height, width, 3]: a strip for each answer, its pictures on the left. Wrong ones have a red edge and say so."""
    from PIL import Image, ImageDraw

    strips = [_Strip(answer) for answer in answers]
    height = sum(strip.height for strip in strips) or LINE
    sheet = Image.new("RGB", (3 * GAP + PICTURE + TEXT, height), PAPER)
    pen, top = ImageDraw.Draw(sheet), 0
    for strip in strips:
        colour = {True: RIGHT, False: WRONG, None: RULE}[strip.answer.right]
        pen.rectangle((0, top, GAP // 2 - 1, top + strip.height - 2), colour)
        pen.line((0, top + strip.height - 1, sheet.width, top + strip.height - 1), RULE)
        for picture, (x, y) in strip.pictures:
            sheet.paste(picture, (GAP + x, top + GAP + y))
        for number, line in enumerate(strip.lines):
            _write(pen, (2 * GAP + PICTURE, top + GAP + number * LINE), line)
        top += strip.height
    return np.asarray(sheet)


def text(answers: Iterable[ShownAnswer]) -> str:
    """A table in Markdown, as TensorBoard shows texts; it has every character, whatever fonts there are."""
    rows = ["| sample | question | right answer | answer | blind answer | |", "|---|---|---|---|---|---|"]
    for answer in answers:
        said = (answer.name, answer.question, answer.truth, answer.answer, answer.blind, answer.verdict)
        rows.append("| " + " | ".join(map(_cell, said)) + " |")
    return "\n".join(rows)


class _Line(NamedTuple):
    label: str
    said: str
    colour: tuple[int, int, int]


class _Strip:
    """The part of the sheet that belongs to one answer."""

    def __init__(self, answer: ShownAnswer) -> None:
        self.answer = answer

    @property
    def height(self) -> int:
        pictures = max((y + picture.height for picture, (_, y) in self.pictures), default=0)
        return 2 * GAP + max(pictures, len(self.lines) * LINE)

    @cached_property
    def pictures(self) -> list[tuple["Image", tuple[int, int]]]:
        """Pictures in a square grid, each with where it goes."""
        edge = max(1, int(np.ceil(np.sqrt(len(self.answer.pictures)))))
        cell = PICTURE // edge
        return [
            (_fitted(picture, cell - (edge > 1) * 4), (cell * (place % edge), cell * (place // edge)))
            for place, picture in enumerate(self.answer.pictures)
        ]

    @cached_property
    def lines(self) -> list[_Line]:
        answer = self.answer
        verdict = {True: RIGHT, False: WRONG, None: FAINT}[answer.right]
        texts = [
            ("sample", f"{answer.name}: {answer.verdict}" + ("" if answer.pictures else ", no image"), verdict),
            ("question", answer.question, INK),
            ("right", answer.truth, RIGHT),
            ("answer", answer.answer or "(nothing)", verdict if answer.right is not None else INK),
            ("blind", answer.blind or "(nothing)", FAINT),
        ]
        return [line for label, said, colour in texts for line in _wrapped(label, said, colour)]


def _wrapped(label: str, said: str, colour: tuple[int, int, int]) -> Iterator[_Line]:
    lines = list(islice(_broken(printable(said)), LONGEST + 1))
    if len(lines) > LONGEST:
        lines[LONGEST - 1 :] = ["\N{HORIZONTAL ELLIPSIS}"]
    for number, line in enumerate(lines):
        yield _Line(label if number == 0 else "", line, colour)


def _broken(said: str) -> Iterator[str]:
    """Lines that fit, broken at spaces; where there is none (Chinese, a model that repeats a letter) within a word."""
    room = TEXT - LABEL
    for paragraph in said.split("\n"):
        line, width, space = "", 0.0, 0
        for letter in paragraph:
            if width + length(letter) > room and letter != " ":
                end = space or len(line)
                yield line[:end]
                line = line[end:].lstrip(" ")
                width, space = sum(map(length, line)), 0
            line, width = line + letter, width + length(letter)
            space = len(line) if letter == " " else space
        yield line


def _write(pen: "ImageDraw", at: tuple[int, int], line: _Line) -> None:
    x, y = at
    for start, said, colour in ((x, line.label, FAINT), (x + LABEL, line.said, line.colour)):
        for font, piece in pieces(said):
            pen.text((start, y), piece, colour, font)
            start += int(font.getlength(piece))


def _fitted(picture: "Image", edge: int) -> "Image":
    from PIL.Image import Resampling

    picture = picture.convert("RGB")
    longest = max(picture.size)
    if longest * 2 <= min(edge, SMALL):  # in whole multiples, so that its pixels can be seen
        factor = min(edge, SMALL) // longest
        return picture.resize((picture.width * factor, picture.height * factor), Resampling.NEAREST)
    scale = min(1.0, edge / longest)
    return picture.resize([max(1, round(side * scale)) for side in picture.size], Resampling.BILINEAR)


def _cell(said: str) -> str:
    # As text, whoever wrote it: neither markup nor Markdown, which would fetch what ![](http://...) names.
    return escape(printable(said)).translate(_MARKDOWN).replace("\n", "<br>") or "(nothing)"
