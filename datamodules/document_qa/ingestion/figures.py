"""Figures of a PDF's page: its images, and drawings made of many paths that lie close together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.document_qa.ingestion.boxes import Box, height, union, width
from datamodules.document_qa.ingestion.pdf_objects import Drawn

_CELLS = 100  # of the grid, along each edge of the page: what is less than two cells apart belongs together
_BACKGROUND = 0.5  # of the page: a path around more than that is a border or a background
_SMALLEST = 0.04  # of the page's edges: what is smaller is a symbol within the text
_PATHS, _UPRIGHT = 8, 4  # the least of a drawing, of them those that are more than a rule or an underline
_SEGMENTS = 24  # of one path that is a drawing by itself
_THIN = 2.0  # points


def figure_boxes(drawn: Sequence[Drawn]) -> list[Box]:
    """Their places, in no order."""
    parts = [one for one in drawn if one.is_image or width(one.box) * height(one.box) <= _BACKGROUND]
    if not any(one.is_image for one in parts) and not _is_drawing(parts):
        return []  # most pages
    return [
        box
        for group in _close_together(parts)
        if any(one.is_image for one in group) or _is_drawing(group)
        if width(box := union(one.box for one in group)) >= _SMALLEST and height(box) >= _SMALLEST
    ]


def _is_drawing(parts: Sequence[Drawn]) -> bool:
    upright = [one for one in parts if one.points[1] > _THIN]
    many = len(parts) >= _PATHS and len(upright) >= _UPRIGHT
    return many or any(one.segments >= _SEGMENTS for one in upright)


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
    number = 0
    for row, column in np.argwhere(grid == -1):
        if grid[row, column] != -1:
            continue
        number += 1
        grid[row, column] = number
        border = [(int(row), int(column))]
        while border:
            y, x = border.pop()
            around = grid[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            for dy, dx in np.argwhere(around == -1):
                place = max(y - 1, 0) + int(dy), max(x - 1, 0) + int(dx)
                grid[place] = number
                border.append(place)
