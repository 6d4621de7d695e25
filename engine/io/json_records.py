"""Parses JSON of users' files strictly: each record has one meaning, or an error states what is wrong with it.

Python's parser accepts more than JSON. Of a key that occurs twice it keeps the last value, `NaN` and `1e999` become
numbers that no measurement has, and deep nesting ends in a RecursionError of whatever uses the value.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 2**24
"""Largest length of a line of a question file, in bytes."""

MAX_DEPTH = 64
"""Largest depth of nested lists and objects."""

_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_DIGITS = 300  # of an integer; a larger integer is beyond the range of a float
_MAX_SHOWN = 60  # bytes of a line that a message shows

_FORMATS = {
    b"\x1f\x8b": "gzip", b"PK\x03\x04": "a zip archive", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd", b"PAR1": "Parquet", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16",
    b"SQLite format 3": "an SQLite database",
}  # fmt: skip
"""{first bytes: name of the format} of files that are not text in UTF-8."""


def parse_json(data: bytes | str) -> Any:
    """Parse one JSON value.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, an object has a key twice, a number is out of range, a
            surrogate has no partner, or values are nested more than MAX_DEPTH deep. The message does not name the file.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8-sig")  # skips a byte-order mark
        value = json.loads(
            text,
            object_pairs_hook=reject_duplicate_keys,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise ValueError(describe_undecodable(error)) from error
    except RecursionError as error:
        raise ValueError(f"{error}; expected at most {MAX_DEPTH} levels of lists and objects") from error
    # `json.loads` accepts half of a surrogate pair from such an escape.
    if _HALF_PAIR.search(text):
        _check_characters(value)
    # Each level has a bracket, so almost no record needs the second look.
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(f"found more than {MAX_DEPTH} levels of lists and objects, expected at most {MAX_DEPTH}")
    return value


def parse_located_json(where: str, data: bytes | str) -> Any:
    """Parse one JSON value of a file, as `parse_json` does.

    Args:
        where: file, line and key of the value, for the message.
        data: its text.

    Raises:
        ValueError: the value is invalid; the message names the place and the reason, and shows the text's beginning.
    """
    try:
        return parse_json(data)
    except ValueError as error:
        line = data.encode() if isinstance(data, str) else data
        raise ValueError(f"{where}: not JSON ({error}): {describe_line(line)}") from error


def iterate_lines(path: Path, expected: str) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of each non-blank line of a file, without its line end. One line is in memory at once.

    Args:
        path: the file. A byte-order mark is skipped. A line ends with a line feed, a carriage return, or both.
        expected: what the file should be, for messages, for example "an object per line".

    Raises:
        ValueError: the file is compressed, a folder or a pipe, or a line is longer than MAX_LINE_BYTES; the message
            names file and line.
        OSError: the file cannot be read.
    """
    check_regular_file(path, expected)
    with path.open("rb") as file:
        number = 0
        # One byte more than allowed, so that a longer line is detected without reading it whole.
        while line := file.readline(MAX_LINE_BYTES + 1):
            if not number:
                check_text_file(line, path, expected)
                line = line.removeprefix(b"\xef\xbb\xbf")
            if len(line) > MAX_LINE_BYTES:
                raise ValueError(
                    f"{path}, line {number + 1}: found more than {MAX_LINE_BYTES:,} bytes without a line end; "
                    f"expected {expected}, of at most {MAX_LINE_BYTES:,} bytes"
                )
            # `readline` splits at line feeds only; a file may end its lines with carriage returns.
            for part in line.splitlines():
                number += 1
                if part.strip():
                    yield number, part


def check_regular_file(path: Path, expected: str) -> None:
    """Check that a path is a file: opening a pipe would wait for its writer, and a device may have no end.

    Args:
        path: the path; if nothing is there, opening it raises the error.
        expected: what the file should be, for the message.

    Raises:
        ValueError: it is a folder, a pipe or a device.
    """
    if path.exists() and not path.is_file():
        found = "a folder" if path.is_dir() else "a pipe or a device"
        raise ValueError(f"{path}: found {found}, expected a file: {expected}")


def check_text_file(beginning: bytes, path: Path, expected: str) -> None:
    """Check that a file is not compressed, of another binary format, or UTF-16.

    Args:
        beginning: its first bytes.
        path: the file, for the message.
        expected: what the file should be, for the message.

    Raises:
        ValueError: it is; the message names the file and the format.
    """
    found = next((name for magic, name in _FORMATS.items() if beginning.startswith(magic)), None)
    if found is not None:
        raise ValueError(f"{path}: found {found}, expected {expected}; decompress or convert it")


def describe_undecodable(error: UnicodeDecodeError) -> str:
    """Return which byte is not UTF-8, and where it is."""
    return f"found the byte {error.object[error.start]:#04x}, which is not UTF-8, at position {error.start}"


def describe_names(names: Iterable[object]) -> str:
    """Return names from a file, which may be long or unprintable, for messages."""
    text = ", ".join(map(str, names))
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= 2 * _MAX_SHOWN else f"{text[: 2 * _MAX_SHOWN]}..."


def describe_value(value: object) -> str:
    """Return a value, cut to a bounded length, for messages."""
    text = repr(value)
    return text if len(text) <= 2 * _MAX_SHOWN else f"{text[: 2 * _MAX_SHOWN]}..."


def describe_line(line: bytes) -> str:
    """Return the beginning of a line, for messages."""
    text = line[:_MAX_SHOWN].decode("utf-8", "replace")
    return repr(text) + ("..." if len(line) > _MAX_SHOWN else "")


def reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of (key, value) pairs, an `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: a key occurs twice.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        # `dict` has dropped a value. Only now is the slower search for the key worth its time.
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                values = f"{describe_value(seen[key])} and {describe_value(value)}"
                raise ValueError(f"found the key {describe_value(key)} twice, with {values}; expected each key once")
            seen[key] = value
    return members


def _check_characters(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start : error.end]
        raise ValueError(f"found {found!r}, half of a surrogate pair; expected whole characters") from error


def _constant(name: str) -> Any:
    raise ValueError(f"found {name}, which JSON does not have; expected a number, or null for a missing one")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), -float("inf")):
        raise ValueError(f"found the number {text[:_MAX_SHOWN]}, which is beyond the range of a float")
    return value


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"found an integer of {len(text):,} digits, expected at most {_DIGITS}")
    return int(text)


def _depth(value: object) -> int:
    """Return how deep lists and objects are nested."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        level = [child for item in level for child in (item.values() if isinstance(item, dict) else item)]
    return depth
