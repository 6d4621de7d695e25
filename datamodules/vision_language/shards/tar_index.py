"""Lists the members of a tar archive in order, from the headers alone: names, offsets and sizes.

Python's tarfile treats a corrupt header and a truncated archive as the end of the archive, and trusts any size.
Training must neither lose samples silently nor trust the data.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import BinaryIO, NamedTuple

MAX_BYTES = 64 << 20
"""Maximum size of a file of a sample, in bytes."""

_BLOCK = 512
_CHUNK = 1 << 20  # bytes that are read at once after the end mark
_LONGEST_NAME = 300  # characters of a name in a message
_DIGITS = 20  # of the length of a record in an extended header
_SIZE_LIMIT = 1 << 50  # bytes; a larger size is corrupt
_MAX_EXTENSION = 1 << 20  # maximum bytes of an extended header, which holds a path and a few numbers
_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL, _FOLDER = b"L", b"K", b"x", b"g", b"5"
_SUSPECT = re.compile(r"\.\.|^/|[\\:\0]")
_REGULAR = (b"0", b"\0", b"7")


class TarMember(NamedTuple):
    """A regular file in a tar archive: where its headers and its content are."""

    name: str
    begin: int  # offset of the headers, in bytes
    offset: int  # offset of the content, in bytes
    size: int  # bytes
    data: bytes | None  # the content, if `keep` was set and it is not too large


def iter_members(file: BinaryIO, archive: str, keep: bool, begin: int = 0) -> Iterator[TarMember]:
    """Yield the regular files of an archive; folders are skipped.

    Args:
        file: the archive, positioned at `begin`.
        archive: name of the archive, for errors.
        keep: read the contents, for a stream without random access; otherwise seek over them.
        begin: offset of the first member's headers.

    Raises:
        ValueError: the archive is truncated, corrupt or compressed, or has links, devices, or paths that leave it; the
            message names the member.
        OSError: the archive cannot be read.
    """
    offset, last = begin, ""
    extended: dict[str, str] = {}
    while True:
        block = file.read(_BLOCK)
        if len(block) < _BLOCK:
            raise _truncation_error(archive, last, offset + len(block))
        if not any(block):  # a block of zeros is the end mark
            _check_end(file, archive, last, offset)
            return
        header = _header(block, archive, last, offset)
        path = extended.get("path", header.name)
        name, kind = _escaped(path), _kind(header, path)
        last = shown_name(name)
        size = 0 if kind == _FOLDER else int(extended.get("size", header.size))
        if not 0 <= size < _SIZE_LIMIT:
            raise ValueError(
                f"{archive}: the header of {last} states {size} bytes, at byte {offset:,}; the archive is corrupt"
            )
        offset += _BLOCK
        padded = -(-size // _BLOCK) * _BLOCK  # contents fill whole blocks
        # An extended header precedes the file that it describes.
        if kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL):
            if size > _MAX_EXTENSION:
                raise ValueError(f"{archive}: an extended header of {size:,} bytes at byte {offset:,}; expected a path")
            extended.update(_extension(kind, file.read(padded)[:size], archive, offset))
        else:
            if kind in _REGULAR:
                _check_name(path, archive, offset - _BLOCK)
                data = _contents(file, padded, size) if keep else None
                if data is not None and len(data) < size:
                    raise _truncation_error(archive, last, offset + len(data))
                yield TarMember(name, begin, offset, size, data)
            elif kind != _FOLDER:
                raise ValueError(
                    f"{archive}: {last} is a link or a device; only regular files and folders are read. Write the "
                    "archive again with the files themselves (tar --dereference --hard-dereference)"
                )
            extended = {}
            begin = offset + padded
            if not keep:
                file.seek(begin)
        offset += padded


def _truncation_error(archive: str, last: str, at: int) -> ValueError:
    location = f"in {last}, or right after it" if last else "before its first file"
    return ValueError(
        f"{archive}: the archive ends {location}, at {at:,} bytes, without an end mark; copy or write it again "
        "(decompress a compressed archive: images are compressed already)"
    )


def _check_end(file: BinaryIO, archive: str, last: str, at: int) -> None:
    """Refuse files after an end mark: of an archive that `cat` appended, or after a header that was erased."""
    while block := file.read(_CHUNK):
        if block.count(0) < len(block):
            raise ValueError(
                f"{archive}: the end mark at byte {at:,}{last and ', after ' + last} is followed by other bytes than "
                "zeros, which may be further files. Copy or write a corrupt archive again; unite archives with "
                "`tar --concatenate`, or name each"
            )


def shown_name(name: str) -> str:
    """Return a name from an archive on one line and of bounded length, for messages."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


def _check_name(name: str, archive: str, at: int) -> None:
    """Refuse a name that leads out of the folder into which other tools would unpack the archive."""
    if not _SUSPECT.search(name):  # parsing the path would take as long as the rest of the header
        return
    parts = {*PurePosixPath(name).parts, *PureWindowsPath(name).parts}
    if ".." in parts or PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or "\0" in name:
        raise ValueError(
            f"{archive}: found the file {shown_name(_escaped(name))} at byte {at:,}, expected a path inside the "
            "archive, without .."
        )


class _Header(NamedTuple):
    name: str
    size: int
    kind: bytes


def _header(block: bytes, archive: str, last: str, at: int) -> _Header:
    """Parse a POSIX ustar or GNU header; tarfile's own parser is eight times slower."""
    try:
        # The checksum counts its own field, bytes 148 to 155, as spaces.
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != int(block[148:156].strip(b"\0 "), 8):
            raise ValueError("wrong checksum")
        name = block[:100].partition(b"\0")[0]
        if block.startswith(b"ustar\0", 257) and block[345]:
            name = block[345:500].partition(b"\0")[0] + b"/" + name
        # GNU stores a size that does not fit octal digits as a binary number.
        size = int.from_bytes(block[125:136], "big") if block[124] == 0x80 else int(block[124:136].strip(b"\0 "), 8)
    except ValueError as error:
        raise ValueError(
            f"{archive}: found no tar header at byte {at:,}{last and ', after ' + last} ({error}). Decompress a "
            "compressed archive (images are compressed already); copy or write a corrupt one again"
        ) from error
    return _Header(_decoded(name), size, block[156:157])


def _kind(header: _Header, path: str) -> bytes:
    """Return the type of a member; before POSIX, folders had no type of their own.

    Args:
        header: its header, whose name has at most 100 bytes, and may be cut after a slash.
        path: its whole path, which an extended header may hold.
    """
    return _FOLDER if header.kind in _REGULAR and path.endswith("/") else header.kind


def _decoded(name: bytes) -> str:
    """Decode a name, whose bytes that are not UTF-8 become surrogates: as backslashes they would look like a path."""
    return name.decode("utf-8", "surrogateescape")


def _escaped(name: str) -> str:
    """Return a decoded name with backslashes in place of its surrogates, which no text file can hold."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _extension(kind: bytes, text: bytes, archive: str, at: int) -> dict[str, str]:
    """Parse an extended header: the `path` of the next file if it is long, its `size` if it is large."""
    if kind == _LONG_NAME:
        return {"path": _decoded(text.rstrip(b"\0"))}
    extended = {}
    while kind == _PAX and text:  # records of the form "LENGTH KEY=VALUE\n"
        length, _, rest = text.partition(b" ")
        if not length.isdigit() or len(length) > _DIGITS or not 0 < int(length) <= len(text):
            raise ValueError(f"{archive}: corrupt extended header ({text[:40]!r}) at byte {at:,}")
        key, _, value = text[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"path" or (key == b"size" and value.isdigit() and len(value) < 20):
            extended[key.decode()] = _decoded(value)
        text = text[int(length) :]
    return extended


def _contents(file: BinaryIO, padded: int, size: int) -> bytes | None:
    """Read the content up to the next header; None if the file is too large."""
    if size <= MAX_BYTES:
        return file.read(padded)[:size]
    for start in range(0, padded, MAX_BYTES):
        if not file.read(min(MAX_BYTES, padded - start)):
            break  # reading the next header reports the truncation
    return None
