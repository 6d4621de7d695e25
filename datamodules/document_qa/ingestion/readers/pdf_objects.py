"""Lists the objects on a page of a PDF: images and paths, with positions as fractions of the page."""

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.readers.bounding_boxes import Box, clip_to_page

_MAX_OBJECTS = 20_000  # largest number of objects of a page, and of path segments; a map may have more
_DEEPEST = 8  # largest nesting depth of forms

Matrix = tuple[float, float, float, float, float, float]  # x' = a x + c y + e, y' = b x + d y + f
_UNMOVED: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


class PageObject(NamedTuple):
    """An image or a path on a PDF page, from which figures and ruled tables are found."""

    is_image: bool
    box: Box  # on the page, in shares
    lines: tuple[Box, ...] = ()  # straight segments of a path, each as the diagonal of a box; may be off the page
    segments: int = 0  # number of all segments of a path, including curves


class PageFrame:
    """Maps the coordinates of a PDF page (points, upwards, before rotation) to fractions of the displayed page."""

    def __init__(self, page: Any) -> None:
        self._left, self._bottom, right, self._top = page.get_bbox()
        self._width, self._height = right - self._left, self._top - self._bottom
        self._turned = page.get_rotation()
        self.width, self.height = page.get_size()
        """Size of the displayed page, in points."""

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Map a box; it may lie off the page."""
        x0, x1 = (left - self._left) / self._width, (right - self._left) / self._width
        y0, y1 = (self._top - top) / self._height, (self._top - bottom) / self._height
        if self._turned == 90:
            return 1 - y1, x0, 1 - y0, x1
        if self._turned == 180:
            return 1 - x1, 1 - y1, 1 - x0, 1 - y0
        if self._turned == 270:
            return y0, 1 - x1, y1, 1 - x0
        return x0, y0, x1, y1


def page_objects(page: Any, frame: PageFrame) -> list[PageObject]:
    """Return images and visible paths on the page, including those in forms."""
    import pypdfium2.raw as pdfium

    objects: list[PageObject] = []
    segments = 0
    for raw, kind, matrix in _objects(page.raw):
        if len(objects) == _MAX_OBJECTS:
            break
        is_image = kind == pdfium.FPDF_PAGEOBJ_IMAGE
        if not is_image and not _is_visible(raw):
            continue
        bounds = [ctypes.c_float() for _ in range(4)]
        if not pdfium.FPDFPageObj_GetBounds(raw, *bounds):
            continue
        box = frame.box(*_transform_box(matrix, *(bound.value for bound in bounds)))
        if box[0] >= 1 or box[1] >= 1 or box[2] <= 0 or box[3] <= 0:
            continue
        count = 0 if is_image else max(0, pdfium.FPDFPath_CountSegments(raw))
        segments += count
        # Beyond the limit a path keeps its box, but no lines: its tables are not detected.
        lines = tuple(_path_segments(raw, count, matrix, frame)) if segments <= _MAX_OBJECTS else ()
        objects.append(PageObject(is_image, clip_to_page(box), lines, count))
    return objects


def _objects(raw: Any, depth: int = 0, matrix: Matrix = _UNMOVED) -> Iterator[tuple[Any, int, Matrix]]:
    """Yield (object, type, matrix from the object's coordinates to the page's) of all images and paths."""
    import pypdfium2.raw as pdfium

    if depth:
        count, get = pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject
    else:
        count, get = pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject
    for index in range(count(raw)):
        item = get(raw, index)
        kind = pdfium.FPDFPageObj_GetType(item)
        if kind in (pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_IMAGE):
            yield item, kind, matrix
        elif kind == pdfium.FPDF_PAGEOBJ_FORM and depth < _DEEPEST:
            yield from _objects(item, depth + 1, _concatenate(_matrix(item), matrix))


def _path_segments(path: Any, count: int, matrix: Matrix, frame: PageFrame) -> Iterator[Box]:
    """Yield the straight segments of a path, each as the box of which it is the diagonal."""
    import pypdfium2.raw as pdfium

    matrix = _concatenate(_matrix(path), matrix)
    x, y = ctypes.c_float(), ctypes.c_float()
    first = last = (0.0, 0.0)
    for index in range(count):
        segment = pdfium.FPDFPath_GetPathSegment(path, index)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        pdfium.FPDFPathSegment_GetPoint(segment, x, y)
        point = _point(matrix, x.value, y.value)
        if kind == pdfium.FPDF_SEGMENT_MOVETO:
            first = point
        elif kind == pdfium.FPDF_SEGMENT_LINETO:
            yield _between(frame, last, point)
        last = point
        # A path that is closed has a last line back to its first point, which is not a segment.
        if pdfium.FPDFPathSegment_GetClose(segment):
            yield _between(frame, last, first)


def _between(frame: PageFrame, start: tuple[float, float], end: tuple[float, float]) -> Box:
    (x0, x1), (y0, y1) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return frame.box(x0, y0, x1, y1)


def _matrix(raw: Any) -> Matrix:
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(raw, matrix):
        return _UNMOVED
    return matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f


def _concatenate(first: Matrix, then: Matrix) -> Matrix:
    if first == _UNMOVED:
        return then
    a, b, c, d, e, f = first
    p, q, r, s, t, u = then
    return a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u


def _point(matrix: Matrix, x: float, y: float) -> tuple[float, float]:
    a, b, c, d, e, f = matrix
    return a * x + c * y + e, b * x + d * y + f


def _transform_box(matrix: Matrix, left: float, bottom: float, right: float, top: float) -> Box:
    if matrix == _UNMOVED:
        return left, bottom, right, top
    xs, ys = zip(*(_point(matrix, x, y) for x in (left, right) for y in (bottom, top)), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _is_visible(path: Any) -> bool:
    import pypdfium2.raw as pdfium

    fill, stroke = ctypes.c_int(), ctypes.c_int()
    if not pdfium.FPDFPath_GetDrawMode(path, fill, stroke):
        return True
    return bool(fill.value != pdfium.FPDF_FILLMODE_NONE or stroke.value)
