"""Checks in a PNG what Pillow does not: checksums of the pixels, their number, and which color is transparent."""

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from engine.data.errors import BadSampleError

if TYPE_CHECKING:
    from PIL.Image import Image

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB = 0, 2  # color types
_CHANNELS = {_GRAY: 1, _RGB: 3, 3: 1, 4: 2, 6: 4}  # by color type
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column, first row, step of columns and step of rows of each pass of an interlaced image."""

_BLOCK = 1 << 14  # compressed bytes at once, which become 16 MB at most


class _Header(NamedTuple):
    width: int
    height: int
    depth: int  # bits per channel
    color: int  # color type
    compression: int
    filter: int
    interlaced: int


def check_sums(data: bytes, name: str) -> None:
    """Refuse a PNG whose pixels changed since it was written: Pillow compares the checksums of other parts only."""
    for kind, content, checksum in _chunks(data):
        # A file that ends too early is refused if pixels are missing, but not for want of an end mark.
        if (
            kind == b"IDAT"
            and len(checksum) == 4
            and zlib.crc32(content, zlib.crc32(kind)) != int.from_bytes(checksum, "big")
        ):
            raise BadSampleError(
                f"{name}: found pixels with a wrong checksum; the file has changed since it was written"
            )


def check_length(data: bytes, image: "Image", name: str) -> None:
    """Refuse a PNG whose compressed pixels end after a row before the last: Pillow leaves the other rows black.

    An interlaced image, and one whose last row is zero as written, is decompressed a second time, which doubles its
    cost. Nothing else tells black rows of the image from rows that are missing.

    Args:
        data: content of the file.
        image: the loaded image.
        name: where the image comes from, for errors.
    """
    header = _header(data)
    last = image.crop((0, image.height - 1, image.width, image.height))
    if not header.interlaced and last.getbbox(alpha_only=False) is not None:
        return  # the last row has been read, so the pixels need not be decompressed again
    expected = _raw_size(header)
    found = _decompressed_size(data, expected)
    if found < expected:
        raise BadSampleError(
            f"{name}: found pixels of {found:,} bytes, expected {expected:,} for a PNG of {header.width} x "
            f"{header.height} pixels; the file is cut off, fetch or write it again"
        )


def scale_transparency(data: bytes, image: "Image", name: str) -> None:
    """Scale the transparent gray of a PNG to 8 bits, as Pillow scales the pixels.

    Raises:
        BadSampleError: the transparent color has 16 bits per channel, of which Pillow reads 8.
    """
    hidden = image.info.get("transparency")
    header = _header(data)
    if hidden is None:
        return
    if header.color == _RGB and header.depth == 16:
        raise BadSampleError(
            f"{name}: found a PNG with 16 bits per channel and a transparent color (tRNS), expected 8 bits or an alpha "
            "channel; save it so"
        )
    if header.color == _GRAY and header.depth in (2, 4):
        largest = 2**header.depth - 1
        image.info["transparency"] = (hidden & largest) * 255 // largest


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield kind, content and checksum of each chunk; of the last, less if the file is truncated."""
    start = len(_SIGNATURE)
    while start < len(data):
        # A chunk is: length (4 bytes), kind (4), content, CRC-32 of kind and content (4).
        end = start + 8 + int.from_bytes(data[start : start + 4], "big")
        yield data[start + 4 : start + 8], data[start + 8 : end], data[end : end + 4]
        start = end + 4


def _header(data: bytes) -> _Header:
    return _Header(*struct.unpack(">IIBBBBB", next(content for kind, content, _ in _chunks(data) if kind == b"IHDR")))


def _raw_size(header: _Header) -> int:
    """Return the size of the decompressed pixels in bytes: each row has a byte for its filter."""
    passes = _PASSES if header.interlaced else ((0, 0, 1, 1),)
    size = 0
    for column, row, columns, rows in passes:
        width = (header.width - column + columns - 1) // columns
        height = (header.height - row + rows - 1) // rows
        if width > 0 and height > 0:
            size += height * (1 + (width * header.depth * _CHANNELS[header.color] + 7) // 8)
    return size


def _decompressed_size(data: bytes, at_most: int) -> int:
    """Return how many bytes the pixels decompress to, counted until there are `at_most`."""
    stream, size = zlib.decompressobj(), 0
    for kind, content, _ in _chunks(data):
        for start in range(0, len(content) if kind == b"IDAT" else 0, _BLOCK):
            if size < at_most:
                size += len(stream.decompress(content[start : start + _BLOCK]))
    return size
