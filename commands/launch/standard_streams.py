"""Replaces the standard streams by streams that never fail: a training outlives its console.

Python raises an error from `print`, and from the last flush, if stdout or stderr is a closed pipe (`| head`), a full
disk, closed (`>&-`), a full pipe that does not block, or of an encoding that lacks a character. A training that has
written all its files would end with exit code 1 or 120.
"""

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from typing_extensions import Buffer, override

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class _UnfailingFile(io.FileIO):
    """A descriptor that refers to the null device from its first failed write on."""

    @override
    def write(self, data: Buffer, /) -> int:
        try:
            while (written := super().write(data)) is None:  # a full pipe that another program has set not to block
                select.select([], [self], [])
            return written
        except OSError:
            _redirect_to_null(self.fileno())
            return memoryview(data).nbytes


@contextmanager
def tolerate_broken_console() -> Iterator[None]:
    """Let writes to stdout and stderr succeed, although the text may be lost.

    For commands whose result is files.
    """
    stdout, stderr = _unfailing(sys.stdout, _STDOUT), _unfailing(sys.stderr, _STDERR)
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            yield
        finally:
            stdout.flush()
            stderr.flush()


def open_closed_descriptors() -> None:
    """Make each of stdin, stdout and stderr that is closed refer to the null device.

    A file that is opened later would otherwise get its number, and messages of libraries would be written into a
    checkpoint, for example. Child processes inherit them.
    """
    for number, mode in ((_STDIN, os.O_RDONLY), (_STDOUT, os.O_WRONLY), (_STDERR, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # it takes the lowest free number, which is this number


def _unfailing(stream: TextIO | None, number: int) -> TextIO:
    """Return a stream that never fails.

    Args:
        stream: `sys.stdout` or `sys.stderr`; None if its descriptor was closed when Python started.
        number: standard number of the descriptor.
    """
    if stream is None:
        return _wrap(number, "utf-8", "backslashreplace", line_buffering=False)
    if sys.platform == "win32" and stream.isatty():
        return stream  # a console of Windows takes text; bytes in UTF-8 would be read in its code page
    try:
        number = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return stream  # no file, as in a test that captures the output
    try:
        stream.flush()
    except OSError:
        _redirect_to_null(number)
    buffering = getattr(stream, "line_buffering", False)
    errors = "backslashreplace" if stream.errors in (None, "strict") else stream.errors
    return _wrap(number, stream.encoding, errors, line_buffering=buffering)


def _wrap(number: int, encoding: str, errors: str, line_buffering: bool) -> TextIO:
    buffer = io.BufferedWriter(_UnfailingFile(number, "w", closefd=False))
    return io.TextIOWrapper(buffer, encoding=encoding, errors=errors, line_buffering=line_buffering)


def _redirect_to_null(number: int) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        # The descriptor itself is replaced, so writes of C libraries and of child processes succeed as well.
        os.dup2(null, number)
    finally:
        os.close(null)
