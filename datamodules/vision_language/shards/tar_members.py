"""The files in a tar archive, in their order, without extracting any: names, places and sizes from the headers alone.

Python's tarfile takes a damaged header, and an archive that ends too early, for the archive's end, and reads what it is
told to, however long. Training must neither lose samples without a word nor trust the data.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MOST_BYTES = 64 << 20
"""The largest file of a sample."""

_BLOCK = 512
_NO_SIZE = 1 << 50  # bytes; no file is as large
_MOST_EXTENSION = 1 << 20  # bytes of an extended header; a path and a few numbers
_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL, _FOLDER = b"L", b"K", b"x", b"g", b"5"
_REGULAR = (b"0", b"\0", b"7")


class Member(NamedTuple):
    """A regular file in an archive."""

    name: str
    begin: int  # where its headers begin, in bytes from the archive's beginning
    offset: int  # where its contents begin
    size: int  # bytes
    data: bytes | None  # its contents, if they were kept and are not too large


def members(file: BinaryIO, archive: str, keep: bool, begin: int = 0) -> Iterator[Member]:
    """The regular files of an archive; folders are passed over.

    Args:
        file: the archive, at `begin`.
        archive: its name, for errors.
        keep: read the contents, of a file that can only be read on; else seek over them.
        begin: where a member's headers begin.

    Raises:
        ValueError: the archive ends too early, is damaged or compressed, or holds links or devices; names the member.
        OSError: it cannot be read.
    """
    offset, last, told = begin, "", {}
    while True:
        block = file.read(_BLOCK)
        if len(block) < _BLOCK:
            raise _ended(archive, last, offset + len(block))
        if not any(block):
            return
        header = _header(block, archive, last, offset)
        last = told.get("path", header.name)
        size = 0 if header.kind == _FOLDER else int(told.get("size", header.size))
        if not 0 <= size < _NO_SIZE:
            raise ValueError(f"{archive}: the header of {last} says that it has {size} bytes; the archive is damaged")
        offset += _BLOCK
        padded = -(-size // _BLOCK) * _BLOCK
        if header.kind in (_LONG_NAME, _LONG_LINK, _PAX, _PAX_OF_ALL):
            if size > _MOST_EXTENSION:
                raise ValueError(f"{archive}: an extended header of {size:,} bytes before {last}; expected a path")
            told.update(_extension(header.kind, file.read(padded)[:size], archive, last))
        else:
            if header.kind in _REGULAR:
                data = _contents(file, padded, size) if keep else None
                if data is not None and len(data) < size:
                    raise _ended(archive, last, offset + len(data))
                yield Member(last, begin, offset, size, data)
            elif header.kind != _FOLDER:
                raise ValueError(f"{archive}: {last} is a link or a device; only regular files and folders are read")
            told = {}
            begin = offset + padded
            if not keep:
                file.seek(begin)
        offset += padded


def _ended(archive: str, last: str, at: int) -> ValueError:
    place = f"in {last}, or right after it" if last else "before its first file"
    return ValueError(
        f"{archive}: the archive ends {place}, at {at:,} bytes, without the end mark of a whole one; copy or write it "
        "again (a compressed one must be unpacked: images are compressed already)"
    )


class _Header(NamedTuple):
    name: str
    size: int
    kind: bytes


def _header(block: bytes, archive: str, last: str, at: int) -> _Header:
    """The fields of POSIX's ustar header and of GNU's; tarfile's own reader takes eight times as long."""
    try:
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != int(block[148:156].strip(b"\0 "), 8):
            raise ValueError("its checksum does not hold")
        name = block[:100].partition(b"\0")[0]
        if block.startswith(b"ustar\0", 257) and block[345]:
            name = block[345:500].partition(b"\0")[0] + b"/" + name
        # GNU writes what has no room in octal digits as a binary number.
        size = int.from_bytes(block[125:136], "big") if block[124] == 0x80 else int(block[124:136].strip(b"\0 "), 8)
    except ValueError as error:
        raise ValueError(
            f"{archive}: at byte {at:,}{last and ', after ' + last} stands no header of a tar archive ({error}). A "
            "compressed one must be unpacked (images are compressed already), a damaged one copied or written again"
        ) from error
    kind = _FOLDER if name.endswith(b"/") else block[156:157]  # before POSIX folders had no kind of their own
    return _Header(name.decode("utf-8", "backslashreplace"), size, kind)


def _extension(kind: bytes, text: bytes, archive: str, last: str) -> dict[str, str]:
    """What an extended header says of the file after it: its `path` if it is long, its `size` if it is large."""
    if kind == _LONG_NAME:
        return {"path": text.rstrip(b"\0").decode("utf-8", "backslashreplace")}
    told = {}
    while kind == _PAX and text:  # records of the form "LENGTH KEY=VALUE\n"
        length, _, rest = text.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(text):
            raise ValueError(f"{archive}: a damaged extended header ({text[:40]!r}) near {last or 'its beginning'}")
        key, _, value = text[len(length) + 1 : int(length) - 1].partition(b"=")
        if key == b"path" or (key == b"size" and value.isdigit() and len(value) < 20):
            told[key.decode()] = value.decode("utf-8", "backslashreplace")
        text = text[int(length) :]
    return told


def _contents(file: BinaryIO, padded: int, size: int) -> bytes | None:
    """What stands up to the next header, of a file that is not too large."""
    if size <= MOST_BYTES:
        return file.read(padded)[:size]
    for start in range(0, padded, MOST_BYTES):
        if not file.read(min(MOST_BYTES, padded - start)):
            break  # the next header will not be there
    return None
