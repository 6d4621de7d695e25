"""The plain reference for JSON: what RFC 8259 calls interoperable, and nothing else."""

import json
from typing import Any

from tests.fuzz.reader import InvalidInput


def parse(text: bytes | str) -> Any:
    """Parse one JSON value: UTF-8, each key once. NaN and Infinity are numbers, which a reader may ignore or refuse.

    Raises:
        InvalidInput: the text is not such a value.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(decoded, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not JSON: {str(error)[:100]}") from error


def lines(data: bytes) -> list[tuple[int, Any]]:
    """Return (number from 1, value) of each line that is not blank.

    Raises:
        InvalidInput: a line is not JSON, or there is none.
    """
    # A file that was joined from several has several byte-order marks.
    split = enumerate((line.removeprefix(b"\xef\xbb\xbf") for line in data.split(b"\n")), 1)
    found = [(number, parse(line)) for number, line in split if line.strip()]
    if not found:
        raise InvalidInput("there is no line")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs) and any(found[key] != value for key, value in pairs):
        raise ValueError("a key occurs twice with different values")
    return found
