"""Images that a data set names by their path in a folder."""

import errno
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from datamodules.multimodal.unusable import UnusableSample

LARGEST = 256 * 2**20
"""Bytes of the largest file that is read: more than any image has that may be decoded."""

_OF_THE_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
"""What the system says of a path, and not of a disk that fails."""


class ImageFolder:
    """Reads images of a folder, and nothing outside of it.

    What a row names is a relative path without `..`. Symbolic links in the folder are followed: who can place them
    there owns the folder.

    Args:
        folder: where the paths begin.

    Raises:
        NotADirectoryError: there is no such folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._require()

    def read(self, name: str, path: Any) -> bytes:
        """An image file's bytes.

        Args:
            name: file and row that name the image, for errors.
            path: the image's, as the row has it.

        Raises:
            UnusableSample: the path leaves the folder, or there is no file (or one too large) that may be read.
            OSError: the folder is gone, or the disk failed.
        """
        if not isinstance(path, str) or not path:
            raise UnusableSample(f"{name}: its image must be a path in {self.folder}, found {path!r}")
        # A data set may be written on one system and read on another: both must find the path harmless.
        parts = [*PurePosixPath(path).parts, *PureWindowsPath(path).parts]
        if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or ".." in parts or "\0" in path:
            raise UnusableSample(f"{name}: its image {path!r} must be a path inside {self.folder}, without ..")
        file = self.folder / path
        try:
            found = file.stat()
            if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST:
                return file.read_bytes()
        except UnicodeEncodeError as error:
            raise UnusableSample(f"{name}: its image {path!r} is no path") from error
        except OSError as error:
            if error.errno not in _OF_THE_PATH:
                raise
            self._require()
            raise UnusableSample(f"{name}: its image {file} cannot be read: {error.strerror}") from error
        what = f"has {found.st_size} bytes, more than {LARGEST}" if stat.S_ISREG(found.st_mode) else "is not a file"
        raise UnusableSample(f"{name}: its image {file} {what}")

    def _require(self) -> None:
        if not self.folder.is_dir():
            raise NotADirectoryError(f"{self.folder}: there is no such folder of images")
