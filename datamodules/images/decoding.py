"""Decodes untrusted image files to RGB: bounded memory, EXIF orientation applied, transparency on white."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from datamodules.images import png
from engine.data.errors import BadSampleError
from engine.data.rgb_image import to_rgb

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")

PAGE_FORMATS = (*FORMATS, "AVIF")
"""Formats of page images beside TIFF."""

MAX_PIXELS = 178_956_970
"""Pillow's own limit in pixels: twice its MAX_IMAGE_PIXELS."""

_MAX_SCANNED = 20 * MAX_PIXELS
"""Maximum of pixels times scans of a progressive JPEG, which usually has about ten scans."""

_START_OF_SCAN = b"\xff\xda"
_ORIENTATION = 0x0112  # EXIF tag


def decode(
    data: bytes, name: str, max_pixels: int, needed: int | None = None, formats: tuple[str, ...] = FORMATS
) -> "Image":
    """Decode an image file to RGB; of an animation the first frame.

    The size is read from the header first: a file of kilobytes can decode to gigabytes, so a larger image is never
    decoded.

    Args:
        data: content of a file in one of `formats`.
        name: where the image comes from, for errors.
        max_pixels: maximum of width x height.
        needed: length of the shorter edge that is sufficient, in pixels. A JPEG with at least twice this length is
            decoded at 1/2, 1/4 or 1/8 scale, which is several times faster.
        formats: Pillow's names of the accepted formats.

    Raises:
        BadSampleError: the image is empty, too large, truncated, corrupt, or of another format.
    """
    from PIL import Image

    with _named_errors(data, name, formats):
        image = Image.open(io.BytesIO(data), formats=formats)
        _check_pixels(image, name, max_pixels)
        _check_scans(data, image, name)
        if image.format == "PNG":
            png.check_sums(data, name)
            image.load()
            png.check_length(data, image, name)
            png.scale_transparency(data, image, name)
        return to_rgb(_upright(image, needed))


def decode_pages(data: bytes, name: str, max_pixels: int) -> Iterator["Image"]:
    """Decode the pages of a scan to RGB, one at a time: all of a TIFF file, else the image that `decode` returns.

    Args:
        data: content of a file in TIFF or one of PAGE_FORMATS.
        name: where the image comes from, for errors.
        max_pixels: maximum of width x height of each page.

    Raises:
        BadSampleError: a page is empty, too large, truncated, corrupt, or of another format; pages before it are
            yielded.
    """
    from PIL import Image

    formats = (*PAGE_FORMATS, "TIFF")
    with _named_errors(data, name, formats):
        image = Image.open(io.BytesIO(data), formats=formats)
    if image.format != "TIFF":
        yield decode(data, name, max_pixels, formats=PAGE_FORMATS)
        return
    page = 0
    while True:
        with _named_errors(data, f"{name}, page {page + 1}", formats):
            try:
                image.seek(page)
            except EOFError:
                return
            _check_pixels(image, f"{name}, page {page + 1}", max_pixels)
            image.load()  # applies the orientation
            decoded = to_rgb(image)
        yield decoded
        page += 1


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from the header of a file; None if its format is not in FORMATS."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Image.open(io.BytesIO(data), formats=FORMATS).size
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  (Pillow raises almost any exception; `decode` reports the problem)
            return None


def count_frames(data: bytes) -> int:
    """Return how many frames or pictures an animation or an MPO file has, of which `decode` returns the first.

    Returns:
        1 for a file that is not in PAGE_FORMATS or cannot be read; `decode_pages` reports the problem.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return int(getattr(Image.open(io.BytesIO(data), formats=PAGE_FORMATS), "n_frames", 1))
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  (Pillow raises almost any exception for a corrupt file)
            return 1


@contextmanager
def _named_errors(data: bytes, name: str, formats: tuple[str, ...]) -> Iterator[None]:
    """Convert what Pillow raises for a file to a BadSampleError that names it."""
    from PIL import Image, UnidentifiedImageError

    # Pillow warns of large images, invalid EXIF data and old palettes. The relevant cases are errors here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (MemoryError, BadSampleError):
            raise
        except UnidentifiedImageError as error:
            raise BadSampleError(f"{name}: {_describe(data)}, expected an image ({', '.join(formats)})") from error
        except Image.DecompressionBombError as error:
            raise BadSampleError(f"{name}: found an image of more than {MAX_PIXELS:,} pixels: {error}") from error
        except Exception as error:  # noqa: BLE001  (Pillow raises almost any exception for a corrupt file)
            reason = " ".join(str(error).split()) or type(error).__name__
            raise BadSampleError(f"{name}: {_describe(data)} that cannot be decoded: {reason}") from error


def _check_pixels(image: "Image", name: str, max_pixels: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise BadSampleError(f"{name}: found an image of {width} x {height} pixels, expected at least one pixel")
    if width * height > max_pixels:
        raise BadSampleError(
            f"{name}: found an image of {width} x {height} = {width * height:,} pixels, expected at most "
            f"{max_pixels:,} (max_pixels)"
        )


def _check_scans(data: bytes, image: "Image", name: str) -> None:
    """Refuse a progressive JPEG that repeats its scans: a scan of few bytes takes as long as a scan of many."""
    if not image.info.get("progressive"):
        return
    scans = data.count(_START_OF_SCAN)  # the marker cannot occur within a scan
    if scans * image.width * image.height > _MAX_SCANNED:
        raise BadSampleError(
            f"{name}: found a progressive JPEG of {image.width} x {image.height} pixels and {scans:,} scans, expected "
            f"at most {_MAX_SCANNED // (image.width * image.height):,} scans of this size"
        )


def _upright(image: "Image", needed: int | None) -> "Image":
    """Decode an image and apply its EXIF orientation."""
    from PIL.Image import Transpose

    if needed is not None and image.format == "JPEG":
        # Twice the needed size, so that resizing still averages over pixels.
        image.draft(None, (2 * needed, 2 * needed))
    orientation = image.getexif().get(_ORIENTATION)
    image.load()
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90,
    }  # fmt: skip
    return image.transpose(turns[orientation]) if orientation in turns else image


def _describe(data: bytes) -> str:
    return f"found {len(data):,} bytes that begin with {bytes(data[:8])!r}" if data else "found no bytes"
