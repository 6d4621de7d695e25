"""Reads images that a data set names by their path in a folder."""

from pathlib import Path, PurePosixPath, PureWindowsPath

from datamodules.images.image_file import read_image_file
from engine.data.errors import BadSampleError
from engine.io.json_records import describe_value

_LONGEST = 300  # characters of a path in a message


class ImageFolder:
    """Reads images from a folder, and nothing outside of it.

    A row names a relative path without `..`. Symbolic links inside the folder are followed: a link is created by the
    owner of the folder.

    Args:
        folder: base of the paths.

    Raises:
        NotADirectoryError: the folder does not exist.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._require()

    def read(self, name: str, path: object) -> bytes:
        """Read the bytes of an image file.

        Args:
            name: file and row that name the image, for errors.
            path: path of the image, as in the row.

        Raises:
            BadSampleError: the path leaves the folder, or the file is missing, unreadable or too large.
            OSError: the folder is missing, or the disk failed.
        """
        if not isinstance(path, str) or not path:
            raise BadSampleError(f"{name}: the image must be a path in {self.folder}, found {describe_value(path)}")
        # A data set may be written on one system and read on another, so the path must be safe on both.
        parts = [*PurePosixPath(path).parts, *PureWindowsPath(path).parts]
        if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or ".." in parts or "\0" in path:
            raise BadSampleError(
                f"{name}: the image {describe_value(path)} must be a path inside {self.folder}, without .."
            )
        try:
            return read_image_file(self.folder / path, f"{name}: the image {_display_path(self.folder / path)}")
        except BadSampleError:
            self._require()  # a missing folder is not a defect of a row
            raise

    def _require(self) -> None:
        if not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder}: no such folder of images")


def _display_path(path: Path) -> str:
    """Return a path on one line; only the end of a long path."""
    text = str(path) if str(path).isprintable() else repr(str(path))
    return text if len(text) <= _LONGEST else f"...{text[-_LONGEST:]}"
