"""Tests previews as a Markdown table and as a grid of pictures."""

import html
import re

import numpy as np
import pytest
from PIL import Image

from callbacks.logging.preview_rendering import markdown_table, picture_grid
from engine.telemetry.image_grid import encode_png_grid
from engine.telemetry.sample_previews import SamplePreview

RED, BLUE = (Image.new("RGB", (32, 32), color) for color in ((220, 30, 30), (30, 30, 220)))


def preview(picture=RED, right=True, **texts):
    texts = {"question": "what is it?", "expected": "red", "answer": "red", "blind": "blue", **texts}
    return SamplePreview("7", right=right, picture=encode_png_grid(picture) if picture else None, **texts)


def rows(previews):
    return [line.strip("| ").split(" | ") for line in markdown_table(previews).splitlines()[2:]]


def test_the_grid_has_the_pictures_in_order():
    grid = picture_grid([preview(RED), preview(None), preview(BLUE)])
    assert grid.dtype == np.uint8
    assert grid.shape[2] == 3
    middle, quarter = grid.shape[0] // 2, grid.shape[1] // 4
    assert tuple(grid[middle, quarter]) == (220, 30, 30)
    assert tuple(grid[middle, 3 * quarter]) == (30, 30, 220)
    assert picture_grid([preview(None)]) is None


@pytest.mark.parametrize("picture", [Image.new("L", (900, 3)), Image.new("RGBA", (1, 700))])
def test_pictures_of_any_form_are_converted_to_rgb(picture):
    assert picture_grid([preview(picture)]).shape[2] == 3


def test_the_table_numbers_the_pictures_and_grades_the_answers():
    found = rows([preview(), preview(None, right=False), preview(right=None)])
    assert [(row[0], row[-1]) for row in found] == [("1", "right"), ("none", "WRONG"), ("2", "not graded")]
    assert "picture" not in markdown_table([preview(None)])
    assert "blind answer" not in markdown_table([preview(blind=None)])


def test_the_table_keeps_all_characters_that_can_be_displayed():
    (row,) = rows([preview(answer="蓝色 \ud83d\x07", question="a | b\n<b>c</b>")])
    assert row[4] == "蓝色 ? "
    assert row[2] == "a &#124; b<br>&lt;b&gt;c&lt;/b&gt;"
    for answer in ("word " * 500, "\n" * 400):
        assert markdown_table([preview(answer=answer)]).count("|") == markdown_table([preview()]).count("|")


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")  # TensorBoard's own copy of it
@pytest.mark.parametrize(
    "answer",
    ["![x](http://evil/a.png)", "[x](http://evil)", "http://evil/a", "<http://evil>", "`a` *b* __c__ ~~d~~", "\\*"],
)
def test_markdown_in_an_answer_is_text(answer):
    """TensorBoard's own conversion to HTML leaves the answer as it is."""
    from tensorboard.plugin_util import markdown_to_safe_html

    page = markdown_to_safe_html(markdown_table([preview(answer=answer)]))
    [row] = re.findall("<tbody>(.*)</tbody>", page, re.DOTALL)
    cells = re.findall("<td>(.*?)</td>", row)
    assert html.unescape(cells[4]) == answer
    assert "<" not in cells[4]
