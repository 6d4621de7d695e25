"""Places on a page, as shares of its edges from its top left, and the order in which they are read."""

from collections.abc import Callable, Iterable, Sequence

Box = tuple[float, float, float, float]  # left, top, right, bottom
WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)

_COLUMN = 0.25  # of the page's width: what is narrower is no column
_GUTTER = 0.015  # of the page's width: the least between columns


def union(boxes: Iterable[Box]) -> Box:
    """The smallest box around at least one."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def on_page(box: Box) -> Box:
    """What of it lies on the page; without extent where nothing does."""
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in box)
    return left, top, max(left, right), max(top, bottom)


def width(box: Box) -> float:
    return box[2] - box[0]


def height(box: Box) -> float:
    return box[3] - box[1]


def area(box: Box) -> float:
    return width(box) * height(box)


def intersection(one: Box, other: Box) -> Box:
    """Without extent where they do not meet."""
    left, top = max(one[0], other[0]), max(one[1], other[1])
    return left, top, max(left, min(one[2], other[2])), max(top, min(one[3], other[3]))


def grown(box: Box, by: float) -> Box:
    """Larger by so much on each side."""
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def contains_centre(outer: Box, inner: Box) -> bool:
    """Whether the centre of the second lies in the first."""
    x, y = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    return outer[0] <= x <= outer[2] and outer[1] <= y <= outer[3]


def in_reading_order(boxes: Sequence[Box]) -> list[int]:
    """Places in `boxes`: columns from left to right, within them from the top down.

    A page is cut where nothing crosses, into columns if they are wide enough, else into bands, and the parts likewise
    (recursive XY cut, Nagy and Seth, ICPR 1984).
    """
    return _ordered(list(range(len(boxes))), boxes)


def _ordered(places: list[int], boxes: Sequence[Box]) -> list[int]:
    if len(places) < 2:
        return places
    if columns := _columns(places, boxes):
        return [place for column in columns for place in _ordered(column, boxes)]
    bands = _cut(places, lambda place: (boxes[place][1], boxes[place][3]), 0.0)
    if len(bands) > 1:
        return [place for band in _with_common_columns(bands, boxes) for place in _ordered(band, boxes)]
    return sorted(places, key=lambda place: (boxes[place][1], boxes[place][0], place))


def _columns(places: list[int], boxes: Sequence[Box]) -> list[list[int]]:
    """None or at least two."""
    columns = _cut(places, lambda place: (boxes[place][0], boxes[place][2]), _GUTTER)
    wide = all(width(union(boxes[place] for place in column)) >= _COLUMN for column in columns)
    return columns if wide and len(columns) > 1 else []


def _with_common_columns(bands: list[list[int]], boxes: Sequence[Box]) -> list[list[int]]:
    """Bands that follow each other and have the same columns as one: paragraphs may end at the same height."""
    found: list[list[int]] = []
    for band in bands:
        if found and _columns(found[-1], boxes) and _columns(found[-1] + band, boxes):
            found[-1] += band
        else:
            found.append(band)
    return found


def _cut(places: list[int], extent: Callable[[int], tuple[float, float]], gap: float) -> list[list[int]]:
    """Groups of places that overlap, along one axis; between groups there is more than `gap`."""
    groups: list[list[int]] = []
    end = float("-inf")
    for place in sorted(places, key=lambda place: (extent(place), place)):
        first, last = extent(place)
        if groups and first <= end + gap:
            groups[-1].append(place)
        else:
            groups.append([place])
        end = max(end, last)
    return groups
