"""Reads JSON lines, such as a run's metrics.jsonl and predictions.jsonl."""

import json
from pathlib import Path
from typing import Any


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the object of each line of a file.

    Raises:
        ValueError: a line is not JSON.
    """
    with path.open(encoding="utf-8") as file:  # str.splitlines also divides at U+2028, which a JSON text may hold
        return [json.loads(line) for line in file]
