"""Answers with their pictures: what is drawn is what was said, and a run shows it in TensorBoard."""

import numpy as np
import pytest
from PIL import Image

from callbacks import fonts
from callbacks.example_sheet import GAP, PICTURE, RIGHT, WRONG, draw, text
from engine.examples import Example
from engine.pictures import SMALLEST, png

RED = Image.new("RGB", (32, 32), (220, 30, 30))


def answer(right=True, pictures=(RED,), **texts):
    said = {"question": "what is it?", "expected": "red", "answer": "red", "blind": "blue", **texts}
    return Example("7", right=right, picture=png(*pictures) if pictures else None, **said)


def test_each_answer_has_its_picture_and_an_edge_that_says_whether_it_is_right():
    sheet = draw([answer(), answer(right=False, answer="blue"), answer(right=None)])
    assert sheet.dtype == np.uint8 and sheet.shape[2] == 3
    strip = len(sheet) // 3
    edges = [tuple(sheet[number * strip + strip // 2, 1]) for number in range(3)]
    assert edges[:2] == [RIGHT, WRONG] and edges[2] not in (RIGHT, WRONG)
    for number in range(3):
        place = sheet[number * strip + GAP : number * strip + GAP + SMALLEST, GAP : GAP + SMALLEST]
        assert (place == (220, 30, 30)).all(), "a small picture in whole multiples of its pixels"


def test_what_was_said_is_drawn():
    """In another colour where it is wrong, and another text looks otherwise."""
    right, wrong = draw([answer()]), draw([answer(right=False)])
    texts = slice(2 * GAP + PICTURE, None)
    assert (right[:, texts] == RIGHT).all(2).any() and not (right[:, texts] == WRONG).all(2).any()
    assert (wrong[:, texts] == WRONG).all(2).any()
    assert not np.array_equal(draw([answer(blind="green")]), right)


@pytest.mark.parametrize("pictures", [(), (RED,), (RED,) * 5, (Image.new("L", (900, 3)), Image.new("RGBA", (1, 700)))])
def test_any_number_and_form_of_pictures_stays_in_its_place(pictures):
    sheet = draw([answer(pictures=pictures)])
    assert (sheet[:, GAP + PICTURE : 2 * GAP + PICTURE][:-1] == 255).all()
    assert len(sheet) <= 2 * GAP + PICTURE + 1


def test_long_texts_are_wrapped_and_cut():
    width = draw([answer()]).shape[1]
    for said in ("word " * 500, "x" * 3000, "没有空格的长回答" * 300, "\n" * 400):
        sheet = draw([answer(answer=said)])
        assert sheet.shape[1] == width and len(sheet) < 500
        assert (sheet[:-1, -GAP:][:, 5:] == 255).all(), "nothing runs over the edge"
        assert text([answer(answer=said)]).count("|") == text([answer()]).count("|")


def test_letters_without_a_font_are_boxes_and_the_text_has_them(monkeypatch):
    """As on a machine whose fonts are Pillow's own; half characters, which nothing can show, are question marks."""
    monkeypatch.setattr(fonts, "_WIDE_FONTS", ())
    for cached in (fonts._fonts, fonts._font_of):
        cached.cache_clear()
    try:
        chinese, boxes = draw([answer(answer="蓝色 \x07")]), draw([answer(answer="??  ")])
        assert np.array_equal(chinese, boxes)
    finally:
        for cached in (fonts._fonts, fonts._font_of):
            cached.cache_clear()
    said = text([answer(answer="蓝色 \ud83d", question="a | b\n<b>c</b>")])
    assert "蓝色 ?" in said and "a &#124; b<br>&lt;b&gt;c&lt;/b&gt;" in said


@pytest.mark.filterwarnings("ignore:html5lib:DeprecationWarning")  # TensorBoard's own copy of it
@pytest.mark.parametrize(
    "said",
    ["![x](http://evil/a.png)", "[x](http://evil)", "http://evil/a", "<http://evil>", "`a` *b* __c__ ~~d~~", "\\*"],
)
def test_markdown_in_an_answer_is_text(said):
    """As TensorBoard turns it into a page."""
    import html
    import re

    from tensorboard.plugin_util import markdown_to_safe_html

    page = markdown_to_safe_html(text([answer(answer=said)]))
    [row] = re.findall("<tbody>(.*)</tbody>", page, re.DOTALL)
    cells = re.findall("<td>(.*?)</td>", row)
    assert html.unescape(cells[3]) == said and "<" not in cells[3]


def test_letters_that_some_font_has_are_drawn():
    wide = fonts._fonts()[1:]
    letters = [letter for letter in "色é𝄞Ж你" if any(fonts._has(font, letter) for font in fonts._fonts())]
    assert "é" in letters and (not wide or "Ж" in letters)
    for letter in letters:
        ((font, piece),) = fonts.pieces(letter)
        assert piece == letter and fonts._has(font, letter)
