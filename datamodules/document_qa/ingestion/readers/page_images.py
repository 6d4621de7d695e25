"""Reads page images: scans, slides, screenshots. Each page is one figure."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.document_qa.ingestion.page_writer import PageWriter, limit_pixels
from datamodules.document_qa.ingestion.readers.bounding_boxes import WHOLE_PAGE
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.types.document import Chunk
from datamodules.images.decoding import count_frames, decode_pages
from datamodules.images.image_file import read_image_file
from engine.data.errors import BadSampleError, UnreadableDocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_BYTES = 200_000_000
"""Largest size of an image file, which is read as a whole."""

MAX_PIXELS = 100_000_000
"""Largest number of pixels of an image file (width x height), at three bytes each, before it is scaled down."""


def read_images(paths: Sequence[Path], writer: PageWriter, settings: IngestionSettings) -> None:
    """Convert images to pages: one page per image, and every page of a TIFF file.

    Of an animation the first frame is a page, and a warning names the file.

    Raises:
        UnreadableDocumentError: there are too many images, or an image cannot be decoded.
    """
    if len(paths) > settings.max_pages:  # before any is decoded
        raise UnreadableDocumentError(f"found {len(paths):,} pages, ingestion.max_pages allows {settings.max_pages:,}")
    for path in paths:
        for picture in _read_pages(path, path.name, writer.note):
            chunk = Chunk(writer.pages + 1, "figure", WHOLE_PAGE, "")
            writer.add(limit_pixels(picture, settings.max_page_pixels), [chunk])


def read_image(path: Path, name: str, warn: Callable[[str], None]) -> "Image":
    """Read an image of at most MAX_PIXELS, in RGB.

    Args:
        path: the file.
        name: what messages call the image.
        warn: gets a warning if the file is an animation, of which the first frame is read.

    Raises:
        UnreadableDocumentError: the image cannot be decoded, is too large, or has several pages.
    """
    pages = _read_pages(path, name, warn)
    first = next(pages)
    if next(pages, None) is not None:
        raise UnreadableDocumentError(f"{name} has several pages, expected an image of one page")
    return first


def _read_pages(path: Path, name: str, warn: Callable[[str], None]) -> Iterator["Image"]:
    """Yield the pages of an image file, in RGB."""
    try:
        data = read_image_file(path, name, MAX_BYTES)
        if (frames := count_frames(data)) > 1:
            warn(f"{name} has {frames:,} frames, of which the first is read; save the others as files of their own")
        yield from decode_pages(data, name, MAX_PIXELS)
    except BadSampleError as error:
        raise UnreadableDocumentError(str(error)) from error
    except OSError as error:
        raise UnreadableDocumentError(f"{name} cannot be read ({error.strerror})") from error
