"""What is drawn on a page of a PDF: images and paths with their places, and how places become shares of the page."""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.boxes import Box, on_page

_MOST = 20_000  # objects of a page; maps have more, and one figure around them all anyway
_DEEPEST = 8  # forms in forms

Matrix = tuple[float, float, float, float, float, float]  # x' = a x + c y + e, y' = b x + d y + f
_UNMOVED: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


class Drawn(NamedTuple):
    """An image or a path."""

    is_image: bool
    box: Box  # on the page, in shares
    points: tuple[float, float]  # width and height
    segments: int  # of a path: lines and curves


class PageFrame:
    """From a PDF page's own coordinates (points, upwards, before it is turned) to shares of the page as it looks."""

    def __init__(self, page: Any) -> None:
        self.left, self.bottom, self.right, self.top = page.get_bbox()
        self.width, self.height = self.right - self.left, self.top - self.bottom
        self.turned = page.get_rotation()

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Of a box in the page's own coordinates; it may lie outside."""
        x0, x1 = (left - self.left) / self.width, (right - self.left) / self.width
        y0, y1 = (self.top - top) / self.height, (self.top - bottom) / self.height
        if self.turned == 90:
            return 1 - y1, x0, 1 - y0, x1
        if self.turned == 180:
            return 1 - x1, 1 - y1, 1 - x0, 1 - y0
        if self.turned == 270:
            return y0, 1 - x1, y1, 1 - x0
        return x0, y0, x1, y1


def drawn_objects(page: Any) -> list[Drawn]:
    """Images and visible paths, also those inside of forms; what lies off the page is left out."""
    import pypdfium2.raw as pdfium

    frame, found = PageFrame(page), []
    for raw, kind, matrix in _objects(page.raw):
        if len(found) == _MOST:
            break
        if kind == pdfium.FPDF_PAGEOBJ_PATH and not _is_visible(raw):
            continue
        bounds = [ctypes.c_float() for _ in range(4)]
        if not pdfium.FPDFPageObj_GetBounds(raw, *bounds):
            continue
        left, bottom, right, top = _moved(matrix, *(one.value for one in bounds))
        box = frame.box(left, bottom, right, top)
        if box[0] >= 1 or box[1] >= 1 or box[2] <= 0 or box[3] <= 0:
            continue
        is_image = kind == pdfium.FPDF_PAGEOBJ_IMAGE
        segments = 0 if is_image else max(0, pdfium.FPDFPath_CountSegments(raw))
        upright = frame.turned in (0, 180)
        points = (right - left, top - bottom) if upright else (top - bottom, right - left)
        found.append(Drawn(is_image, on_page(box), points, segments))
    return found


def _objects(raw: Any, depth: int = 0, matrix: Matrix = _UNMOVED) -> Iterator[tuple[Any, int, Matrix]]:
    """(object, its type, what maps its coordinates to the page's) of all images and paths."""
    import pypdfium2.raw as pdfium

    if depth:
        count, get = pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject
    else:
        count, get = pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject
    for place in range(count(raw)):
        one = get(raw, place)
        kind = pdfium.FPDFPageObj_GetType(one)
        if kind in (pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_IMAGE):
            yield one, kind, matrix
        elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
            own = pdfium.FS_MATRIX()
            if pdfium.FPDFPageObj_GetMatrix(one, own):
                inner = (own.a, own.b, own.c, own.d, own.e, own.f)
                yield from _objects(one, depth + 1, _after(inner, matrix))


def _after(first: Matrix, then: Matrix) -> Matrix:
    a, b, c, d, e, f = first
    p, q, r, s, t, u = then
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u


def _moved(matrix: Matrix, left: float, bottom: float, right: float, top: float) -> tuple[float, float, float, float]:
    if matrix == _UNMOVED:
        return left, bottom, right, top
    a, b, c, d, e, f = matrix
    xs = [a * x + c * y + e for x in (left, right) for y in (bottom, top)]
    ys = [b * x + d * y + f for x in (left, right) for y in (bottom, top)]
    return min(xs), min(ys), max(xs), max(ys)


def _is_visible(path: Any) -> bool:
    import pypdfium2.raw as pdfium

    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not pdfium.FPDFPath_GetDrawMode(path, fill, stroke):
        return True
    return bool(fill.value != pdfium.FPDF_FILLMODE_NONE or stroke.value)
