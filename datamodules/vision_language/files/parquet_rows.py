"""Reads rows of Parquet files as samples: one file, a folder, or a pattern."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.multimodal.parquet_footer_check import FooterCheck
from datamodules.vision_language.chat_file import ChatFile, ImageChat
from datamodules.vision_language.files.chat_formats import first_filled
from datamodules.vision_language.files.image_folder import ImageFolder
from datamodules.vision_language.files.parquet_rewrite import (
    has_large_row_groups,
    is_rewritten,
    rewritten_folder,
    rewritten_path,
    write_small_groups,
)
from datamodules.vision_language.files.parquet_row_groups import (
    CACHE_BYTES,
    RowGroups,
    file_identity,
    read_footer,
    read_outline,
)
from engine.data.epoch_order import ShuffleBlocks
from engine.data.errors import BadSampleError
from engine.io.folder_walk import require_no_linked_folder, walk_visible, without_folders
from engine.io.json_records import describe_names

log = logging.getLogger("lockstep")

WINDOW = CACHE_BYTES // 3
"""Bytes of the row groups that are shuffled together.

Two windows are in the cache while the reading passes from a window to the next.
"""

_IMAGES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp"})
"""Endings of images, which a row may name by path."""

ColumnFinder = Callable[[Sequence[Path]], Sequence[str]]
"""Returns the columns of files that are read; raises ValueError for a file without them."""


class ParquetRows(ChatFile):
    """A ChatFile of the rows of Parquet files; a subclass converts a row.

    Args:
        path: a file, a folder (searched recursively), or a pattern such as `data/train-*.parquet`.
        root: folder where `prepare` writes files whose row groups are too large.
        images: base folder of images that are named by path instead of being in the file.
        find_columns: finds the columns to read.

    Raises:
        ValueError: a file is not Parquet, lacks a required column, or must be prepared first.
        OSError: a file or folder is missing or cannot be read.
    """

    def __init__(
        self, path: str | Path, root: str | Path, images: str | Path | None, find_columns: ColumnFinder
    ) -> None:
        self.paths = parquet_files(path, root)
        _warn_about_others(Path(path), self.paths, root)
        self.columns = list(find_columns(self.paths))
        files, outlines = [], []
        for source in self.paths:
            outline = read_outline(read_footer(source), self.columns)
            if has_large_row_groups(outline):
                source = rewritten_path(source, root, self.columns)
                outline = read_outline(read_footer(source), self.columns)
            files.append(source)
            outlines.append(outline)
        prepared = frozenset(file for file, source in zip(files, self.paths, strict=True) if file != source)
        self._rows = RowGroups(files, self.columns, outlines, prepared)
        self._images = ImageFolder(self.paths[0].parent if images is None else images)
        # Row groups that are shuffled together must fit the cache, or each sample would read a row group. The order
        # of the samples depends on the files only, not on the cache.
        self.identity = " ".join(map(file_identity, self.paths))
        self.blocks: ShuffleBlocks | None = ShuffleBlocks(self._rows.starts, self._rows.sizes, WINDOW)

    @abstractmethod
    def convert(self, name: str, fields: dict[str, Any]) -> ImageChat:
        """Return a row as a chat. Raises BadSampleError."""

    @override
    def __len__(self) -> int:
        return len(self._rows)

    @override
    def name(self, row: int) -> str:
        file, number = self._rows.locate(row)
        return f"{self.paths[file]}, row {number + 1}"  # from 1, as lines are

    @override
    def read(self, row: int) -> ImageChat:
        name = self.name(row)
        try:
            fields = self._rows.row(row)
        except UnicodeDecodeError as error:
            raise BadSampleError(f"{name}: a text is not UTF-8: {error}") from error
        except BadSampleError:
            raise
        except (ValueError, OverflowError) as error:  # a time or a number that Python does not have
            raise BadSampleError(f"{name}: a value cannot be read: {error}") from error
        return self.convert(name, fields)

    def row_images(self, name: str, fields: dict[str, Any], columns: Sequence[str]) -> list[bytes]:
        """Return the bytes of a row's images: one or a list, each of bytes, a path, or an object of both.

        Args:
            name: file and row, for errors.
            fields: the row.
            columns: columns that images may be in; the first that is filled is read.

        Raises:
            BadSampleError: an image is empty, or its file cannot be read.
        """
        column = first_filled(columns, fields)
        if column is None or fields[column] is None:
            return []
        images = fields[column]
        return [self._image(name, column, image) for image in (images if isinstance(images, list) else [images])]

    def _image(self, name: str, column: str, image: object) -> bytes:
        if isinstance(image, dict):
            image = image.get("path") if image.get("bytes") is None else image["bytes"]
        if image is None or image == b"":
            raise BadSampleError(f"{name}: an image in the column {column} is empty")
        return image if isinstance(image, bytes) else self._images.read(name, image)


def parquet_files(path: str | Path, root: str | Path | None = None) -> list[Path]:
    """Return the file, the files below the folder, or the files that match the pattern, sorted by name.

    Hidden files and folders are ignored, and files that `prepare` has written, which may lie below the folder.

    Args:
        path: a file, a folder, or a pattern.
        root: folder that `prepare` writes to; None: files that it has written are not ignored.

    Raises:
        FileNotFoundError: there is none, or one is a pipe, a device or a link to a missing file.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if path.is_dir():
        visible = list(walk_visible(path))
        require_no_linked_folder(path, visible, ".parquet")
        matches = (file for file in visible if file.name.endswith(".parquet"))
    else:
        names = map(Path, glob(str(path), recursive=True))
        matches = (name for name in names if not name.name.startswith("."))
    # A folder of parts, as Spark writes it, has the suffix as well.
    files = sorted(file for file in without_folders(matches) if root is None or not is_rewritten(file, root))
    if not files:
        problem = "a folder without .parquet files" if path.is_dir() else "not a file, a folder or a matching pattern"
        raise FileNotFoundError(f"{path}: {problem}")
    return files


def _warn_about_others(folder: Path, files: Sequence[Path], root: str | Path) -> None:
    """Name the files of a folder that are not read; images may be named by rows, and are many."""
    if not folder.is_dir():
        return
    visible = (path for path in walk_visible(folder) if path.suffix.lower() not in _IMAGES)
    present = {path for path in visible if path.is_file()}
    ours = rewritten_folder(root).resolve()
    if others := sorted(
        str(path.relative_to(folder)) for path in present - set(files) if path.resolve().parent != ours
    ):
        log.warning(
            "%s: %d files are not read, as they do not end in .parquet: %s", folder, len(others), describe_names(others)
        )


def prepare_rows(path: str | Path, root: str | Path, find_columns: ColumnFinder) -> list[Path]:
    """Check the footers, rewrite each file whose row groups are too large, and return the paths that were written now.

    The call may be repeated, interrupted, and made by several processes at once.

    Raises:
        ValueError, OSError: the errors of ParquetRows; or the disk rejected a file.
    """
    files = parquet_files(path, root)
    with FooterCheck() as footers:
        for file in files:
            footers.check(file)
    columns = find_columns(files)
    large = [file for file in files if has_large_row_groups(read_outline(read_footer(file), columns))]
    return [written for file in large if (written := write_small_groups(file, root, columns)) is not None]
