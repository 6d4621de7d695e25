"""Images as views of one size: whole, or whole and in tiles (as in nanoVLM and LLaVA-NeXT)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.multimodal.batch import ImageLayout, Images

if TYPE_CHECKING:
    from PIL.Image import Image


MARKER = "<image>"
"""What stands in a user's text where an image goes."""


class Views(NamedTuple):
    """The views of one sample's images, one image after the other."""

    pixels: NDArray[np.uint8]  # [v, 3, size, size]
    places: NDArray[np.int64]  # [v], as in Images


_STRIP = 1 << 22
"""Pixels that are padded at once."""

_LARGE = 8
"""Edges of a view: an image that is longer is first made smaller by a whole factor, with a box filter, then padded."""

_ENORMOUS = 64
"""Edges of what is made of it: of a longer image nobody can tell that a box filter has made it smaller first, and
resizing a line of millions of pixels would take gigabytes."""

_LONGEST = 100
"""The longer edge of what is cropped, in shorter edges."""

Fit = Literal["stretch", "pad", "crop"]
"""How an image becomes a square view: its edges stretched, a square around it (LLaVA), or the square in its middle."""


def views_of(image: "Image", layout: ImageLayout, fit: Fit = "stretch") -> Views:
    """The whole image, and its tiles in reading order if it is larger than a view and may be split.

    The image is stretched to whole tiles, as few as keep its longer edge (at most `max_tiles` along it) and about its
    shape; `fit` is of the view of the whole.
    """
    views, places = [_whole(image, layout, fit)], [0]
    rows, columns = tiles(image.height, image.width, layout)
    if rows * columns > 1:
        sheet = _resized(image, columns * layout.size, rows * layout.size)
        for row in range(rows):
            for column in range(columns):
                top, left = row * layout.size, column * layout.size
                views.append(sheet[top : top + layout.size, left : left + layout.size])
                places.append(1 + row * layout.max_tiles + column)
    pixels = np.ascontiguousarray(np.stack(views).transpose(0, 3, 1, 2))
    return Views(pixels, np.array(places, np.int64))


def tiles(height: int, width: int, layout: ImageLayout) -> tuple[int, int]:
    """Rows and columns of tiles that an image is split into; (1, 1): it is not."""
    longer = max(height, width)
    most = min(layout.max_tiles, -(-longer // layout.size))
    rows, columns = (-(-edge * most // longer) for edge in (height, width))
    return rows, columns


def no_views(layout: ImageLayout) -> Views:
    """Of a sample without an image."""
    return Views(np.zeros((0, 3, layout.size, layout.size), np.uint8), np.zeros(0, np.int64))


def joined(views: Sequence[Views], layout: ImageLayout) -> Views:
    """The views of several images as those of one sample."""
    pixels, places = zip(no_views(layout), *views, strict=True)
    return Views(np.concatenate(pixels), np.concatenate(places))


def collate_views(samples: Sequence[Views], layout: ImageLayout) -> Images:
    """The samples' views side by side; of no sample, one without views."""
    pixels, places = joined(samples, layout)
    views = [len(sample.places) for sample in samples] or [0]
    return Images(torch.from_numpy(pixels), torch.from_numpy(places), torch.tensor(views, dtype=torch.int64))


def _whole(image: "Image", layout: ImageLayout, fit: Fit) -> NDArray[np.uint8]:
    if fit == "stretch" or image.width == image.height:
        return _resized(image, layout.size, layout.size)
    return _padded(image.convert("RGB"), layout) if fit == "pad" else _cropped(image.convert("RGB"), layout.size)


def _padded(image: "Image", layout: ImageLayout) -> NDArray[np.uint8]:
    """A square around the image, resized (LLaVA); strip by strip, as the square around a line would be enormous."""
    from PIL import Image
    from PIL.Image import Resampling

    longer, size = max(image.size), layout.size
    factor = longer // (_LARGE * size)
    if factor > 1:  # the square around a photo of 60 million pixels, or around a line, would take minutes
        image = image.reduce(tuple(min(factor, edge) for edge in image.size))
        longer = max(image.size)
    left, top = (longer - image.width) // 2, (longer - image.height) // 2
    narrow, rows = Image.new("RGB", (size, longer), layout.background), max(1, _STRIP // longer)
    for start in range(0, image.height, rows):
        part = image.crop((0, start, image.width, min(start + rows, image.height)))
        strip = Image.new("RGB", (longer, part.height), layout.background)
        strip.paste(part, (left, 0))
        narrow.paste(strip.resize((size, part.height), Resampling.BICUBIC), (0, top + start))
    return _resized(narrow, size, size)


def _cropped(image: "Image", size: int) -> NDArray[np.uint8]:
    """The square in the middle of the image when its shorter edge is `size` long (CLIP)."""
    # The middle of a line would otherwise be cut out of an enormous image.
    image = _middle(image, *(min(edge, _LONGEST * min(image.size)) for edge in image.size))
    width, height = (int(size * edge / min(image.size)) for edge in image.size)
    sheet = _resized(image, width, height)
    left, top = (width - size) // 2, (height - size) // 2
    return sheet[top : top + size, left : left + size]


def _middle(image: "Image", width: int, height: int) -> "Image":
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _resized(image: "Image", width: int, height: int) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    edges = zip(image.size, (width, height), strict=True)
    factors = tuple(edge // (_LARGE * made) if edge > _ENORMOUS * made else 1 for edge, made in edges)
    image = image.convert("RGB").reduce(factors) if max(factors) > 1 else image.convert("RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Resampling.BICUBIC)
    return np.asarray(image, np.uint8)
