"""Chats with images in Parquet files: minimind-v's form, The Cauldron's and FineVision's."""

from glob import glob
from io import BytesIO
from pathlib import Path
from typing import Any

from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.files.forms import first_of, marked, messages_of
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.files.parquet_columns import columns_of
from datamodules.vision_language.files.row_groups import KEPT, RowGroups, file_identity, outline, read_footer
from datamodules.vision_language.files.small_groups import rewritten, too_large, write_small_groups
from datamodules.vision_language.image_chat import MARKER, ImageChat
from engine.sampling import Blocks

WINDOW = KEPT // 3
"""Bytes of the row groups that are mixed with each other: while one window ends and the next begins, both are kept."""

_BLANK = 8  # pixels of the edges of what minimind-v puts in the place of an image


class ParquetChats:
    """A ChatFile of one Parquet file, of all in a folder, or of those that a pattern names.

    Args:
        path: a file, a folder (with all below it), or a pattern as ``data/train-*.parquet``.
        root: folder where `prepare` writes files whose row groups are too large to be read in parts.
        images: folder of the images that are named by path instead of being in the file.

    Raises:
        ValueError: a file is none, has not the columns that are needed, or must be prepared first.
        OSError: a file or folder is missing or cannot be read.
    """

    def __init__(self, path: str | Path, root: str | Path, images: str | Path | None = None) -> None:
        self.paths = parquet_files(path)
        self._chats, self._image_columns = columns_of(self.paths)
        columns = [*self._chats, *self._image_columns]
        files, outlines = [], []
        for source in self.paths:
            found = outline(read_footer(source), columns)
            if too_large(found):
                source = rewritten(source, root, columns)
                found = outline(read_footer(source), columns)
            files.append(source)
            outlines.append(found)
        self._rows = RowGroups(files, columns, outlines)
        self._images = ImageFolder(self.paths[0].parent if images is None else images)
        # What is mixed must be kept, or each sample would read a row group. The order of the samples depends on the
        # files alone, whatever a process has kept.
        self.identity = " ".join(map(file_identity, self.paths))
        self.blocks = Blocks(self._rows.starts, self._rows.sizes, WINDOW)

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, row: int) -> str:
        file, number = self._rows.place(row)
        return f"{self.paths[file]}, row {number}"

    def read(self, row: int) -> ImageChat:
        name = self.name(row)
        try:
            fields = self._rows.row(row)
        except UnicodeDecodeError as error:
            raise UnusableSample(f"{name}: a text is not UTF-8: {error}") from error
        column = first_of(self._image_columns, fields)
        found = [] if column is None or fields[column] is None else fields[column]
        images = [self._bytes(name, column, image) for image in (found if isinstance(found, list) else [found])]
        messages = messages_of(name, fields[first_of(self._chats, fields)])
        if len(images) == 1 and not any(MARKER in message["content"] for message in messages) and _blank(images[0]):
            images = []
        return ImageChat(name, marked(name, messages, len(images)), images)

    def _bytes(self, name: str, column: str | None, image: Any) -> bytes:
        if isinstance(image, dict):
            image = image["path"] if image.get("bytes") is None else image["bytes"]
        if image is None or image == b"":
            raise UnusableSample(f"{name}: one of its images in the column {column} is empty")
        return image if isinstance(image, bytes) else self._images.read(name, image)


def parquet_files(path: str | Path) -> list[Path]:
    """The file, those below the folder, or those that the pattern names; in the order of their names.

    Raises:
        FileNotFoundError: there is none.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = path.rglob("*.parquet")
    else:
        found = (Path(name) for name in glob(str(path), recursive=True) if Path(name).is_file())
    files = sorted(file for file in found if not file.name.startswith("."))
    if not files:
        what = "a folder without a .parquet file below it" if path.is_dir() else "no file, no folder and no pattern"
        raise FileNotFoundError(f"{path}: {what}")
    return files


def prepare_parquet(path: str | Path, root: str | Path) -> list[Path]:
    """Writes each file whose row groups are too large again, in small ones; those that were written now.

    It may be repeated, interrupted, and called by several processes at once.

    Raises:
        ValueError, OSError: as of ParquetChats; and the disk did not take what is written.
    """
    files = parquet_files(path)
    columns = [column for some in columns_of(files) for column in some]
    large = [file for file in files if too_large(outline(read_footer(file), columns))]
    return [written for file in large if (written := write_small_groups(file, root, columns)) is not None]


def _blank(image: bytes) -> bool:
    """Whether it is what minimind-v has where there is no image: a tiny black one."""
    from PIL import Image

    if len(image) > 2048:
        return False
    try:
        with Image.open(BytesIO(image), formats=("PNG", "JPEG")) as opened:
            if max(opened.size) > _BLANK:
                return False
            return opened.convert("RGB").getbbox() is None
    except (OSError, ValueError, SyntaxError):
        return False  # whoever decodes it says what is wrong with it
