"""Reads JSON lines, such as a run's metrics.jsonl and predictions.jsonl."""

import json
from pathlib import Path
from typing import Any


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the object of each line of a file.

    Raises:
        ValueError: a line is not JSON.
    """
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
