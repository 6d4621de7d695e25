"""Reads the bytes of an image file, with a bound and with errors that name the file."""

import errno
import stat
from pathlib import Path

from engine.data.errors import BadSampleError

LARGEST = 256 * 2**20
"""Maximum size of an image file, in bytes; larger than any image that may be decoded."""

_PATH_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
"""Errors of a path, as opposed to errors of a failing disk."""


def read_image_file(path: Path, name: str, largest: int = LARGEST) -> bytes:
    """Read the bytes of an image file.

    Args:
        path: the file. Links are followed; a folder, a pipe or a device is not read.
        name: what messages call the image.
        largest: largest size of the file, in bytes.

    Raises:
        BadSampleError: the file is missing, unreadable, too large or not a regular file.
        OSError: the disk failed.
    """
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= largest:
            return path.read_bytes()
    # A name from JSON may have half of a surrogate pair, which no file name has.
    except UnicodeEncodeError as error:
        raise BadSampleError(f"{name} is not a path") from error
    except OSError as error:
        if error.errno not in _PATH_ERRORS:
            raise
        raise BadSampleError(f"{name} cannot be read: {error.strerror}") from error
    if stat.S_ISREG(found.st_mode):
        raise BadSampleError(f"{name} has {found.st_size:,} bytes, more than {largest:,}")
    raise BadSampleError(f"{name} is not a file")
