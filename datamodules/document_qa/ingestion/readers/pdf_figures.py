"""Finds figures on a page of a PDF: images, and drawings of many paths that are close to each other."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.document_qa.ingestion.readers.bounding_boxes import Box, area, height, intersection, union, width
from datamodules.document_qa.ingestion.readers.pdf_objects import PageObject

_CELLS = 60  # grid cells along each edge of the page: objects in adjacent cells belong together
_BACKGROUND = 0.5  # fraction of the page: a path that covers more is a border or a background
_SMALLEST = 0.06  # fraction of the page's edges: anything smaller is a symbol within the text
_PATHS = 8  # least number of paths of a drawing
_LEFT_EDGES = 4  # least number of different left edges of a drawing's paths; those of rules are the same
_SEGMENTS = 24  # least number of segments of a path that is a drawing by itself
_RULE = 0.003  # largest height of a rule, as a fraction of the page
_TEXT = 0.4  # fraction of its area: a group with more text on it is a frame or background of text


def figure_boxes(drawn: Sequence[PageObject], texts: Sequence[Box]) -> list[Box]:
    """Return the boxes of all figures, in no particular order.

    Args:
        drawn: objects of the page, without the ruling lines of tables.
        texts: boxes of the text blocks.
    """
    parts = [part for part in drawn if part.is_image or area(part.box) <= _BACKGROUND]
    if not any(part.is_image for part in parts) and not _is_drawing(parts):
        return []  # the most frequent case
    return [union(part.box for part in group) for group in _close_together(parts) if _is_figure(group, texts)]


def _is_figure(group: Sequence[PageObject], texts: Sequence[Box]) -> bool:
    images = [part.box for part in group if part.is_image]
    if images and _is_large(union(images)):
        return True
    box = union(part.box for part in group)
    covered = sum(area(intersection(box, text)) for text in texts)
    return _is_large(box) and covered <= _TEXT * area(box) and _is_drawing(group)


def _is_large(box: Box) -> bool:
    return width(box) >= _SMALLEST and height(box) >= _SMALLEST


def _is_drawing(parts: Sequence[PageObject]) -> bool:
    upright = [part for part in parts if not part.is_image and height(part.box) > _RULE]
    # A code listing may have a background rectangle per line, all with the same left edge.
    left_edges = len({round(part.box[0], 2) for part in upright})
    return (len(parts) >= _PATHS and left_edges >= _LEFT_EDGES) or any(part.segments >= _SEGMENTS for part in upright)


def _close_together(parts: Sequence[PageObject]) -> list[list[PageObject]]:
    """Group objects whose grid cells are connected."""
    grid = np.zeros((_CELLS, _CELLS), np.int64)
    spans = [_cells(part.box) for part in parts]
    for rows, columns in spans:
        grid[rows, columns] = -1
    _number_areas(grid)
    groups: dict[int, list[PageObject]] = {}
    for part, (rows, columns) in zip(parts, spans, strict=True):
        groups.setdefault(int(grid[rows.start, columns.start]), []).append(part)
    return list(groups.values())


def _cells(box: Box) -> tuple[slice, slice]:
    first_column, first_row = (min(int(edge * _CELLS), _CELLS - 1) for edge in box[:2])
    last_column, last_row = (min(int(edge * _CELLS), _CELLS - 1) for edge in box[2:])
    return slice(first_row, last_row + 1), slice(first_column, last_column + 1)


def _number_areas(grid: NDArray[np.int64]) -> None:
    """Label the connected components of -1 with numbers from 1, in place; corners connect."""
    left = set(map(tuple, np.argwhere(grid == -1).tolist()))
    number = 0
    for start in sorted(left):
        if start not in left:
            continue
        number += 1
        left.remove(start)
        border = [start]
        while border:
            row, column = border.pop()
            grid[row, column] = number
            for cell in ((row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)):
                if cell in left:
                    left.remove(cell)
                    border.append(cell)
