"""Mutations of bytes: flipped, inserted, removed, cut, spliced, zeroed, written in another encoding."""

from collections.abc import Callable
from random import Random

MOST = 200_000
"""Most bytes of a mutated input."""

_STRANGE = (0, 1, 9, 10, 13, 26, 32, 34, 39, 44, 58, 59, 92, 123, 127, 128, 194, 239, 255)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252", "gb18030", "shift_jis", "utf-32")


def mutate_bytes(random: Random, data: bytes) -> bytes:
    """Return the data with one mutation."""
    return random.choice(_MUTATIONS)(random, data)[:MOST]


def _offset(random: Random, data: bytes) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _set(random: Random, data: bytes) -> bytes:
    at = _offset(random, data)
    return data[:at] + bytes([random.choice(_STRANGE)]) + data[at + 1 :]


def _insert(random: Random, data: bytes) -> bytes:
    at, length = _offset(random, data), random.choice((1, 1, 2, 8, 100))
    return data[:at] + bytes(random.choice(_STRANGE) for _ in range(length)) + data[at:]


def _delete(random: Random, data: bytes) -> bytes:
    at, length = _offset(random, data), random.choice((1, 1, 2, 16, 200))
    return data[:at] + data[at + length :]


def _truncate(random: Random, data: bytes) -> bytes:
    return data[: _offset(random, data)]


def _behead(random: Random, data: bytes) -> bytes:
    return data[_offset(random, data) :]


def _splice(random: Random, data: bytes) -> bytes:
    """A part of the data once more, somewhere else."""
    begin, end = sorted((_offset(random, data), _offset(random, data)))
    at = _offset(random, data)
    return data[:at] + data[begin:end] + data[at:]


def _zeros(random: Random, data: bytes) -> bytes:
    at, length = _offset(random, data), random.choice((4, 64, 512, 4096))
    return data[:at] + bytes(min(length, len(data) - at)) + data[at + length :]


def _recode(random: Random, data: bytes) -> bytes:
    encoding = random.choice(_ENCODINGS)
    return data.decode("utf-8", "replace").encode(encoding, "replace")


def _line_ends(random: Random, data: bytes) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"\n\n", b"\0", "\u2028".encode())))


def _number(random: Random, data: bytes) -> bytes:
    """Another integer of 4 or 8 bytes, as lengths and offsets are stored."""
    at, width = _offset(random, data), random.choice((4, 8))
    value = random.choice((0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 2 ** (8 * width) - 1))
    order = "little" if random.random() < 0.5 else "big"
    return data[:at] + value.to_bytes(width, "little" if order == "little" else "big") + data[at + width :]


_MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    _flip,
    _flip,
    _flip,
    _set,
    _insert,
    _delete,
    _truncate,
    _behead,
    _splice,
    _zeros,
    _recode,
    _line_ends,
    _number,
)
