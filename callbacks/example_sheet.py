"""Examples beside their pictures: one image to look at in TensorBoard, and the same as text."""

import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callbacks.fonts import length, pieces, printable
from engine.examples import Example
from engine.pictures import fitted

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

PICTURE, TEXT, GAP = 224, 620, 14  # pixels: edge of a picture's place, width of the texts, and what lies between
LINE = 20  # pixels
LABEL = 84  # pixels of the column in which a line says what it is
LONGEST = 12  # lines of one text
PAPER, INK, FAINT, RULE = (255, 255, 255), (28, 33, 38), (91, 101, 112), (213, 218, 224)
RIGHT, WRONG = (10, 122, 75), (180, 35, 24)

_MARKDOWN = {ord(letter): f"&#{ord(letter)};" for letter in "\\`*_[]()!|~:"}
"""What has a meaning in Markdown or makes an address a link, as what it looks like."""

_VERDICTS = {True: "right", False: "WRONG", None: "not graded"}


def draw(examples: Sequence[Example]) -> NDArray[np.uint8]:
    """[height, width, 3]: a strip for each example, its picture on the left. Wrong ones have a red edge and say so."""
    from PIL import Image, ImageDraw

    strips = [_Strip(example) for example in examples]
    height = sum(strip.height for strip in strips) or LINE
    sheet = Image.new("RGB", (3 * GAP + PICTURE + TEXT, height), PAPER)
    pen, top = ImageDraw.Draw(sheet), 0
    for strip in strips:
        colour = {True: RIGHT, False: WRONG, None: RULE}[strip.example.right]
        pen.rectangle((0, top, GAP // 2 - 1, top + strip.height - 2), colour)
        pen.line((0, top + strip.height - 1, sheet.width, top + strip.height - 1), RULE)
        if strip.picture is not None:
            sheet.paste(strip.picture, (GAP, top + GAP))
        for number, line in enumerate(strip.lines):
            _write(pen, (2 * GAP + PICTURE, top + GAP + number * LINE), line)
        top += strip.height
    return np.asarray(sheet)


def text(examples: Sequence[Example]) -> str:
    """A table in Markdown, as TensorBoard shows texts; it has every character, whatever fonts there are."""
    blind = any(example.blind is not None for example in examples)
    headings = ["sample", "question", "right answer", "answer", *["blind answer"] * blind, ""]
    rows = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for example in examples:
        said = [example.name, example.question, example.expected, example.answer]
        said += [*[example.blind or ""] * blind, _VERDICTS[example.right]]
        rows.append("| " + " | ".join(map(_cell, said)) + " |")
    return "\n".join(rows)


class _Line(NamedTuple):
    label: str
    said: str
    colour: tuple[int, int, int]


class _Strip:
    """The part of the sheet that belongs to one example."""

    def __init__(self, example: Example) -> None:
        self.example = example

    @property
    def height(self) -> int:
        return 2 * GAP + max(0 if self.picture is None else self.picture.height, len(self.lines) * LINE)

    @cached_property
    def picture(self) -> "Image | None":
        from PIL import Image

        picture = self.example.picture
        return None if picture is None else fitted(Image.open(io.BytesIO(picture)), PICTURE)

    @cached_property
    def lines(self) -> list[_Line]:
        example = self.example
        verdict, graded = {True: RIGHT, False: WRONG, None: FAINT}[example.right], example.right is not None
        picture = "" if example.picture else ", no picture"
        texts = [
            ("sample", f"{example.name}: {_VERDICTS[example.right]}{picture}", verdict),
            ("question", example.question, INK),
            ("right", example.expected, RIGHT),
            ("answer", example.answer or "(nothing)", verdict if graded else INK),
            ("blind", example.blind or "(nothing)", FAINT),
        ]
        if not example.question:
            del texts[1]
        if example.blind is None:
            del texts[-1]
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


def _cell(said: str) -> str:
    # As text, whoever wrote it: neither markup nor Markdown, which would fetch what ![](http://...) names.
    return escape(printable(said)).translate(_MARKDOWN).replace("\n", "<br>") or "(nothing)"
