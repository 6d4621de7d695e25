"""Figures of a PDF's page: its images, and drawings made of many paths that lie close together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.document_qa.ingestion.boxes import Box, area, height, intersection, union, width
from datamodules.document_qa.ingestion.pdf_objects import Drawn

_CELLS = 60  # of the grid, along each edge of the page: what is less than a cell apart belongs together
_BACKGROUND = 0.5  # of the page: a path around more than that is a border or a background
_SMALLEST = 0.06  # of the page's edges: what is smaller is a symbol within the text
_PATHS, _PLACES = 8, 4  # the least of a drawing, and of columns that more than rules and underlines begin in
_SEGMENTS = 24  # of one path that is a drawing by itself
_RULE = 0.003  # of the page's height
_TEXT = 0.4  # of its area: what has more text on it is a frame or a background of text


def figure_boxes(drawn: Sequence[Drawn], texts: Sequence[Box]) -> list[Box]:
    """Their places, in no order.

    Args:
        drawn: what is on the page, without the lines of tables.
        texts: places of the text blocks.
    """
    parts = [one for one in drawn if one.is_image or area(one.box) <= _BACKGROUND]
    if not any(one.is_image for one in parts) and not _is_drawing(parts):
        return []  # most pages
    return [union(one.box for one in group) for group in _close_together(parts) if _is_figure(group, texts)]


def _is_figure(group: Sequence[Drawn], texts: Sequence[Box]) -> bool:
    images = [one.box for one in group if one.is_image]
    if images and _is_large(union(images)):
        return True
    box = union(one.box for one in group)
    covered = sum(area(intersection(box, text)) for text in texts)
    return _is_large(box) and covered <= _TEXT * area(box) and _is_drawing(group)


def _is_large(box: Box) -> bool:
    return width(box) >= _SMALLEST and height(box) >= _SMALLEST


def _is_drawing(parts: Sequence[Drawn]) -> bool:
    upright = [one for one in parts if not one.is_image and height(one.box) > _RULE]
    # Behind a listing there is a rectangle for each of its lines, all with the same left edge.
    places = len({round(one.box[0], 2) for one in upright})
    return (len(parts) >= _PATHS and places >= _PLACES) or any(one.segments >= _SEGMENTS for one in upright)


def _close_together(parts: Sequence[Drawn]) -> list[list[Drawn]]:
    """Groups of what covers cells of the grid that touch."""
    grid = np.zeros((_CELLS, _CELLS), np.int64)
    spans = [_cells(one.box) for one in parts]
    for rows, columns in spans:
        grid[rows, columns] = -1
    _number_areas(grid)
    groups: dict[int, list[Drawn]] = {}
    for one, (rows, columns) in zip(parts, spans, strict=True):
        groups.setdefault(int(grid[rows.start, columns.start]), []).append(one)
    return list(groups.values())


def _cells(box: Box) -> tuple[slice, slice]:
    first_column, first_row = (min(int(edge * _CELLS), _CELLS - 1) for edge in box[:2])
    last_column, last_row = (min(int(edge * _CELLS), _CELLS - 1) for edge in box[2:])
    return slice(first_row, last_row + 1), slice(first_column, last_column + 1)


def _number_areas(grid: NDArray[np.int64]) -> None:
    """Gives each connected area of -1 a number of its own, from 1; corners connect."""
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
            for place in ((row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)):
                if place in left:
                    left.remove(place)
                    border.append(place)
