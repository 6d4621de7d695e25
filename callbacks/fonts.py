"""Letters of any script, as far as this machine has fonts for them: Pillow's own has none for Chinese."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

SIZE = 15  # pixels

_WIDE_FONTS = (
    "NotoSansCJK-Regular.ttc", "NotoSansSC-Regular.otf", "SourceHanSansSC-Regular.otf", "wqy-microhei.ttc",
    "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "msyh.ttc", "simsun.ttc", "PingFang.ttc", "Hiragino Sans GB.ttc",
    "Arial Unicode.ttf", "DejaVuSans.ttf",
)  # fmt: skip
"""Files that systems have fonts of many scripts in; none is shipped with Pillow, nor with us."""


@lru_cache(maxsize=65536)
def length(letter: str) -> float:
    """Pixels."""
    return sum(font.getlength(piece) for font, piece in pieces(letter))


def pieces(said: str) -> Iterator[tuple["FreeTypeFont", str]]:
    """The text, each run of letters with the first font that has them; what none has becomes a box."""
    run, current = "", _fonts()[0]
    for letter in said:
        font = _font_of(letter)
        if font is None:
            letter = "\N{WHITE SQUARE}" if _font_of("\N{WHITE SQUARE}") else "?"
            font = _font_of(letter) or current
        if font is not current and run:
            yield current, run
            run = ""
        run, current = run + letter, font
    if run:
        yield current, run


@lru_cache(maxsize=65536)
def _font_of(letter: str) -> "FreeTypeFont | None":
    return next((font for font in _fonts() if _has(font, letter)), None)


@lru_cache(maxsize=1)
def _fonts() -> tuple["FreeTypeFont", ...]:
    """Pillow's own, and one with the scripts that it lacks where the system has one."""
    from PIL import ImageFont

    found = [ImageFont.load_default(SIZE)]
    for name in _WIDE_FONTS:
        try:
            found.append(ImageFont.truetype(name, SIZE, layout_engine=ImageFont.Layout.BASIC))
            break
        except OSError:
            continue
    return tuple(found)


def _has(font: "FreeTypeFont", letter: str) -> bool:
    # What a font does not have looks like what no font has.
    return letter.isspace() or bytes(font.getmask(letter)) != bytes(font.getmask("\U0010ffff"))


def printable(said: str) -> str:
    """Without half characters and control characters, which no font has."""
    whole = said.encode("utf-8", "replace").decode("utf-8")
    return "".join(letter if letter == "\n" or letter.isprintable() else " " for letter in whole)
