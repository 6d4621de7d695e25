"""Tests documents with removed content."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from datamodules.document_qa.types.document import Chunk, Page
from datamodules.document_qa.views.ablation import AblatedDocument, SwappedFigures, apply_ablation
from tests.support.families.colored_squares import COLORS
from tests.support.families.tiny_documents import SIZE, TinyDocument


def pixels(picture: Image.Image) -> Any:
    return np.asarray(picture)


def another() -> TinyDocument:
    document = TinyDocument(3)
    return next(other for other in map(TinyDocument, range(50)) if other.colour != document.colour)


@pytest.mark.parametrize("kind", ["text", "table", "figure"])
def test_ablated_content_is_removed_from_pages_and_pictures(kind: Any) -> None:
    document = TinyDocument(3)
    ablated = apply_ablation(document, kind, another)
    for page, before in zip(ablated.pages, document.pages, strict=True):
        assert page.number == before.number
        assert page.chunks == tuple(chunk for chunk in before.chunks if chunk.kind != kind)
        picture, was = pixels(ablated.picture(page.number)), pixels(document.picture(page.number))
        gone = np.zeros(picture.shape[:2], np.bool_)
        for chunk in before.chunks:
            left, top, right, bottom = chunk.box
            if chunk.kind == kind:
                box = (round(left * SIZE[0]), round(top * SIZE[1]), round(right * SIZE[0]), round(bottom * SIZE[1]))
                gone[box[1] : box[3], box[0] : box[2]] = True
        assert (picture[gone] == 255).all()
        # At the box's very edge a pixel more may be blank, none less.
        near = gone.copy()
        for axis in (0, 1):
            near |= np.roll(near, 1, axis) | np.roll(near, -1, axis)
        assert np.array_equal(picture[~near], was[~near])


def test_nothing_is_taken_away_without_ablation() -> None:
    document = TinyDocument(3)
    assert apply_ablation(document, "none", another) is document


def test_the_document_itself_stays_as_it_is() -> None:
    document = TinyDocument(3)
    picture = document.picture(3)

    class Same(TinyDocument):
        def picture(self, page: int) -> Any:
            return picture

    before = pixels(picture).copy()
    AblatedDocument(Same(3), lambda chunk: True).picture(3)
    SwappedFigures(Same(3), another()).picture(3)
    assert np.array_equal(pixels(picture), before)


def test_figures_of_another_document_replace_its_own() -> None:
    document, other = TinyDocument(3), another()
    ablated = apply_ablation(document, "shuffled_figure", lambda: other)
    figure = document.pages[2].chunks[1]
    assert [page.chunks for page in ablated.pages] == [page.chunks for page in document.pages]
    assert ablated.figure(figure).getpixel((5, 5)) == COLORS[other.colour]
    picture = ablated.picture(3)
    assert picture.getpixel((30, 60)) == COLORS[other.colour]
    assert picture.getpixel((30, 16)) == document.picture(3).getpixel((30, 16))
    assert np.array_equal(pixels(ablated.picture(1)), pixels(document.picture(1)))


def test_where_the_other_has_no_figure_there_is_none() -> None:
    document = TinyDocument(3)
    ablated = SwappedFigures(document, AblatedDocument(another(), lambda chunk: chunk.kind == "figure"))
    assert [chunk.kind for chunk in ablated.pages[2].chunks] == ["text"]
    assert ablated.picture(3).getpixel((30, 60)) == (255, 255, 255)


def test_a_text_in_a_drawing_is_a_text() -> None:
    label = Chunk(1, "text", (0.2, 0.2, 0.4, 0.3), "valve")
    drawing = Chunk(1, "figure", (0.0, 0.0, 0.8, 0.5), "")
    around = Chunk(1, "text", (0.0, 0.0, 1.0, 1.0), "a frame around all")

    class Drawn:
        name = "drawn"
        pages = [Page(1, (label, drawing, around))]

        def picture(self, page: int) -> Any:
            return Image.new("RGB", (100, 100), (9, 9, 9))

        def figure(self, chunk: Chunk) -> Any:
            return Image.new("RGB", (80, 50), (9, 9, 9))

    seen = pixels(AblatedDocument(Drawn(), lambda chunk: chunk.kind == "text").figure(drawing))
    blank = (seen == 255).all(axis=-1)
    assert blank[20:30, 20:40].all()
    assert blank.sum() == 10 * 20
    assert (pixels(AblatedDocument(Drawn(), lambda chunk: chunk.kind == "table").figure(drawing)) == 9).all()
