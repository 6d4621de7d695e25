"""Stores the checksum of a JSON object in the object itself, which reveals later changes."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

CHECKSUM = "checksum"
"""Key of the CRC-32 of all other entries."""


def with_checksum(content: Mapping[str, object]) -> dict[str, Any]:
    """Return the object with its checksum. All keys must be strings."""
    return {**content, CHECKSUM: _crc32(content)}


def has_wrong_checksum(content: Mapping[str, object]) -> bool:
    """Return whether a loaded object has a checksum that its entries do not match. Without a checksum, return False."""
    return CHECKSUM in content and content[CHECKSUM] != _crc32(content)


def _crc32(content: Mapping[str, object]) -> int:
    entries = {key: value for key, value in content.items() if key != CHECKSUM}
    # Sorted, so that the order of the keys does not count.
    return zlib.crc32(json.dumps(entries, sort_keys=True).encode())
