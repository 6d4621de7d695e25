"""Files of images as RGB, whoever made them: in bounded memory, upright, with white where they are transparent."""

import io
import warnings
from typing import TYPE_CHECKING

from datamodules.multimodal.unusable import UnusableSample

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")

MAX_PIXELS = 178_956_970
"""What Pillow refuses to decode itself, in pixels: twice its MAX_IMAGE_PIXELS."""

_ORIENTATION = 0x0112  # the tag's number in EXIF


def decode(data: bytes, name: str, max_pixels: int, needed: int | None = None) -> "Image":
    """An RGB image from a file's bytes; of an animation the first frame.

    The size is read from the header, and nothing is decoded of an image that is too large: a file of kilobytes can
    unfold to gigabytes.

    Args:
        data: a file of one of FORMATS.
        name: where the image comes from, for errors.
        max_pixels: the most pixels, width x height.
        needed: pixels of the shorter edge that are enough. A JPEG that has at least twice as many is decoded at a
            half, a quarter or an eighth of its size, which takes a fraction of the time.

    Raises:
        UnusableSample: the image is too large, cut off, damaged, or not an image of these formats.
    """
    from PIL import Image, UnidentifiedImageError

    # Pillow warns of large images, strange EXIF data and old palettes. What matters of it is an error here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
            width, height = image.size
            if width * height <= max_pixels:
                return _rgb(_upright(image, needed))
        except MemoryError:
            raise
        except UnidentifiedImageError as error:
            raise UnusableSample(f"{name}: {_found(data)}, expected an image ({', '.join(FORMATS)})") from error
        except Image.DecompressionBombError as error:
            raise UnusableSample(f"{name}: found an image of more than {MAX_PIXELS:,} pixels: {error}") from error
        except Exception as error:  # noqa: BLE001  (a damaged file makes Pillow raise almost anything)
            said = str(error).strip() or type(error).__name__
            raise UnusableSample(f"{name}: {_found(data)} that cannot be decoded: {said}") from error
    raise UnusableSample(
        f"{name}: found an image of {width} x {height} = {width * height:,} pixels, expected at most {max_pixels:,} "
        "(max_pixels)"
    )


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height as the header has them, in pixels; None of what is no image of these formats."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Image.open(io.BytesIO(data), formats=FORMATS).size
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  (see above; `decode` says what is wrong)
            return None


def _upright(image: "Image", needed: int | None) -> "Image":
    """Decoded, and turned as its EXIF data say; the camera's sensor lay as the file has it."""
    from PIL.Image import Transpose

    if needed is not None and image.format == "JPEG":
        # Twice as many, so that resizing it still has pixels to take the mean of.
        image.draft(None, (2 * needed, 2 * needed))  # type: ignore[attr-defined]
    orientation = image.getexif().get(_ORIENTATION)
    image.load()
    turns = {
        2: Transpose.FLIP_LEFT_RIGHT, 3: Transpose.ROTATE_180, 4: Transpose.FLIP_TOP_BOTTOM, 5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270, 7: Transpose.TRANSVERSE, 8: Transpose.ROTATE_90,
    }  # fmt: skip
    return image.transpose(turns[orientation]) if orientation in turns else image


def _rgb(image: "Image") -> "Image":
    from PIL import Image

    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        # Sixteen bits of grey; convert() would cut off what is above eight instead of scaling it.
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured)
    return image.convert("RGB")


def _found(data: bytes) -> str:
    return f"found {len(data):,} bytes that begin with {bytes(data[:8])!r}" if data else "found no bytes"
