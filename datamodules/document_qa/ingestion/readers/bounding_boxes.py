"""Computes with bounding boxes, as fractions of a page from its top left, and sorts them in reading order."""

from collections.abc import Callable, Iterable, Sequence

Box = tuple[float, float, float, float]  # left, top, right, bottom
WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)

_COLUMN = 0.25  # smallest width of a column, as a fraction of the page's width
_GUTTER = 0.015  # smallest gap between columns, as a fraction of the page's width


def union(boxes: Iterable[Box]) -> Box:
    """Return the smallest box around at least one box."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def clip_to_page(box: Box) -> Box:
    """Clip a box to the page; it is empty if it lies outside."""
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in box)
    return left, top, max(left, right), max(top, bottom)


def width(box: Box) -> float:
    """Return the width of a box, as a fraction of the page's."""
    return box[2] - box[0]


def height(box: Box) -> float:
    """Return the height of a box, as a fraction of the page's."""
    return box[3] - box[1]


def area(box: Box) -> float:
    """Return the area of a box, as a fraction of the page's."""
    return width(box) * height(box)


def intersection(first: Box, second: Box) -> Box:
    """Return the intersection of two boxes; it is empty if they do not overlap."""
    left, top = max(first[0], second[0]), max(first[1], second[1])
    return left, top, max(left, min(first[2], second[2])), max(top, min(first[3], second[3]))


def expand(box: Box, by: float) -> Box:
    """Enlarge a box by a margin on each side."""
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def contains_center(outer: Box, inner: Box) -> bool:
    """Return whether the center of the inner box is inside the outer box."""
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Return the indices of boxes in reading order: columns from left to right, each from top to bottom.

    Recursive XY cut (Nagy and Seth, ICPR 1984): the page is cut into columns where no box crosses the gap and the
    columns are wide enough, otherwise into horizontal bands; the parts are cut in the same way.
    """
    return _sort_by_position(list(range(len(boxes))), boxes)


def _sort_by_position(indices: list[int], boxes: Sequence[Box]) -> list[int]:
    if len(indices) < 2:
        return indices
    if columns := _columns(indices, boxes):
        return [index for column in columns for index in _sort_by_position(column, boxes)]
    bands = _group_along_axis(indices, lambda index: (boxes[index][1], boxes[index][3]), 0.0)
    if len(bands) > 1:
        return [
            index for band in _merge_bands_with_common_columns(bands, boxes) for index in _sort_by_position(band, boxes)
        ]
    return sorted(indices, key=lambda index: (boxes[index][1], boxes[index][0], index))


def _columns(indices: list[int], boxes: Sequence[Box]) -> list[list[int]]:
    """Cut boxes into columns: an empty list, or at least two."""
    columns = _group_along_axis(indices, lambda index: (boxes[index][0], boxes[index][2]), _GUTTER)
    wide = all(width(union(boxes[index] for index in column)) >= _COLUMN for column in columns)
    return columns if wide and len(columns) > 1 else []


def _merge_bands_with_common_columns(bands: list[list[int]], boxes: Sequence[Box]) -> list[list[int]]:
    """Merge successive bands with the same columns, as paragraphs of both columns may end at the same height."""
    merged: list[list[int]] = []
    for band in bands:
        if merged and _columns(merged[-1], boxes) and _columns(merged[-1] + band, boxes):
            merged[-1] += band
        else:
            merged.append(band)
    return merged


def _group_along_axis(indices: list[int], extent: Callable[[int], tuple[float, float]], gap: float) -> list[list[int]]:
    """Group boxes that overlap along an axis; the gap between groups is larger than `gap`."""
    groups: list[list[int]] = []
    end = float("-inf")
    # Sorted by their start: a box that begins behind the end of all boxes so far begins a group.
    for index in sorted(indices, key=lambda index: (extent(index), index)):
        first, last = extent(index)
        if groups and first <= end + gap:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = max(end, last)
    return groups
