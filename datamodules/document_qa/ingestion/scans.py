"""Pages that are images: scans, slides, screenshots. Each is one figure, which can only be looked at."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.document_qa.document import Chunk
from datamodules.document_qa.ingestion.boxes import WHOLE_PAGE
from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.page_writer import PageWriter, fitted
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.multimodal.image_decoding import decode
from datamodules.multimodal.unusable import UnusableSample

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 200_000_000
"""Of an image's file; it is read whole."""

MOST_PIXELS = 100_000_000
"""Of an image's file, width x height, which take three bytes each; pages are kept at ingestion.max_page_pixels."""


def read_images(paths: Sequence[Path], writer: PageWriter, settings: IngestionSettings) -> None:
    """Hands over a page for each image.

    Raises:
        BrokenDocument: there are too many, or one cannot be decoded.
    """
    if len(paths) > settings.max_pages:
        raise BrokenDocument(f"it has {len(paths):,} pages, ingestion.max_pages allows {settings.max_pages:,}")
    for number, path in enumerate(paths, 1):
        picture = fitted(read_image(path, path.name), settings.max_page_pixels)
        writer.add(picture, [Chunk(number, "figure", WHOLE_PAGE, "")])


def read_image(path: Path, name: str) -> "Image":
    """An image of at most MOST_PIXELS, in RGB.

    Raises:
        BrokenDocument: it cannot be decoded, or is larger.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise BrokenDocument(f"{name} has {size:,} bytes, an image may have {MOST_BYTES:,}")
        return decode(path.read_bytes(), name, MOST_PIXELS)
    except UnusableSample as error:
        raise BrokenDocument(str(error)) from error
    except OSError as error:
        raise BrokenDocument(f"{name} cannot be read ({error.strerror})") from error
