"""The pictures of the documentation exist, are PNGs of a bounded size, and are shown; `make screenshots` takes them."""

import re

import pytest
from PIL import Image

from tests.conftest import REPOSITORY
from tests.screenshots.pages import PICTURES
from tests.screenshots.picture import LARGEST

FOLDER = REPOSITORY / "docs/pictures"
NAMES = {f"{name}.png" for name in PICTURES}


def test_each_picture_is_taken_bounded_and_shown():
    assert {path.name for path in FOLDER.iterdir()} == NAMES
    for name in NAMES:
        with Image.open(FOLDER / name) as picture:
            assert picture.format == "PNG"
            assert picture.width == 1200
            assert picture.height <= 1200
        assert (FOLDER / name).stat().st_size <= LARGEST
    guides = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "docs").glob("*.md"))
    assert all(f"(pictures/{name})" in guides for name in NAMES)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md", "docs/quickstart.md", "docs/demo.md"])
def test_shown_pictures_exist(page):
    path = REPOSITORY / page
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", path.read_text(encoding="utf-8"))  # each with a text beside it
    assert pictures
    assert all((path.parent / picture).is_file() for picture in pictures)
