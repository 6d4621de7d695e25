"""Writes a picture of a page within a limit of size."""

import json
from pathlib import Path

from PIL import Image

from tests.support.outputs.browser import Browser

LARGEST = 300_000
"""Largest size of a picture, in bytes."""

_TALLEST = 1200
_SCROLL = (
    "scrollTo(0, scrollY + document.querySelector({}).getBoundingClientRect().top"
    " - document.querySelector('nav').offsetHeight - 12)"
)
_COLORS = (256, 128, 64, 32)


def take(page: Browser, path: Path, width: int = 1200, dark: bool = False, first: str | None = None) -> None:
    """Write the whole page, at most _TALLEST pixels of it, as PNG with as many colors as the limit of size allows.

    Args:
        page: the page.
        path: file of the picture.
        width: width of the window in pixels.
        dark: whether the visitor prefers dark pages.
        first: selector of the element with which the picture begins, below the bar that stays at the top; None: the
            page's beginning.

    Raises:
        ValueError: it is larger than LARGEST with the fewest colors.
    """
    page.resize(width, 600, dark)
    page.resize(width, min(_TALLEST, int(page.run("Math.ceil(document.documentElement.scrollHeight)"))), dark)
    page.run("scrollTo(0, 0)" if first is None else _SCROLL.format(json.dumps(first)))
    page.screenshot(path)
    with Image.open(path) as shown:
        full = shown.convert("RGB")
    for colors in _COLORS:
        full.quantize(colors).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            return
    raise ValueError(f"{path}: found {path.stat().st_size:,} bytes, expected at most {LARGEST:,}")
