"""Hashes the bytes of files: SHA-256 to distinguish files, CRC-32 to find corruption, samples of large files."""

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 20  # bytes per read; larger chunks leave the cache of a CPU core


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a whole file, in hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def crc32_file(path: Path) -> int:
    """Return the CRC-32 of a whole file. It detects every flip of up to 32 adjacent bits.

    Raises:
        OSError: the file cannot be read.
    """
    crc = 0
    for chunk in _chunks(path):
        crc = zlib.crc32(chunk, crc)
    return crc


def hash_samples(path: Path, blocks: int = 16, block: int = 1 << 16) -> str:
    """Return the SHA-256 of a file's size and of evenly spaced blocks; the first and the last block are always hashed.

    The blocks cover a file of at most `blocks` x `block` bytes as a whole.

    Args:
        path: the file.
        blocks: number of blocks, at least 2.
        block: bytes of a block.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(f"{size} ".encode())
    last = max(0, size - block)
    with path.open("rb", buffering=0) as file:
        for number in range(blocks):
            # The offsets run from 0 to `last` in even steps.
            file.seek(last * number // (blocks - 1))
            digest.update(file.read(block))
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            yield chunk
