"""Reads sample previews of a run from examples/val-STEP.json: the same samples at several steps, bounded in size."""

import base64
import binascii
import re
from pathlib import Path
from typing import Any

from engine.io.json_records import parse_json

_STEP = re.compile(r"val-(\d+)\.json$")

STEPS = 12
"""Largest number of evaluations: the first, the newest and some between."""

_LARGEST = 4 << 20
"""Bytes of base64 of all pictures of a run; further pictures are omitted and counted."""

_PNG = b"\x89PNG\r\n\x1a\n"
_MAX_LENGTH = 4000


def read_previews(folder: Path, largest: int = _LARGEST) -> dict[str, Any]:
    """Return the previews of a run.

    `{steps: [{step, answers: {name: {answer, right, picture}}}], samples: {name: {question, expected}}, ...}`

    A malformed file is skipped and counted.
    """
    numbered = {int(match[1]): path for path in folder.glob("val-*.json") if (match := _STEP.match(path.name))}
    steps: list[dict[str, Any]] = []
    samples: dict[str, dict[str, str]] = {}
    pictures, unreadable = _Pictures(largest), 0
    for step in evenly_spaced(sorted(numbered), STEPS):
        try:
            previews = [_example(item) for item in parse_json(numbered[step].read_bytes())["examples"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            unreadable += 1
            continue
        answers = {}
        for example in previews:
            samples.setdefault(example["name"], {key: example[key] for key in ("question", "expected")})
            answers[example["name"]] = {
                **{key: example[key] for key in ("answer", "blind", "right")},
                "picture": pictures.key(example["picture"]),
            }
        steps.append({"step": step, "answers": answers})
    return {
        "steps": steps,
        "evaluations": len(numbered),
        "samples": samples,
        "pictures": {key: "data:image/png;base64," + picture for picture, key in pictures.keys.items()},
        "unreadable": unreadable,
        "left_out": pictures.omitted,
    }


class _Pictures:
    """Pictures without duplicates, up to a total number of bytes."""

    def __init__(self, largest: int) -> None:
        self.keys: dict[str, str] = {}
        self.omitted, self._remaining = 0, largest

    def key(self, picture: str | None) -> str | None:
        if picture is None:
            return None
        if picture not in self.keys:
            if len(picture) > self._remaining:
                self.omitted += 1
                return None
            self._remaining -= len(picture)
            self.keys[picture] = f"p{len(self.keys)}"
        return self.keys[picture]


def evenly_spaced(items: list[Any], limit: int) -> list[Any]:
    """Return at most `limit` items at even distances, including the first and the last."""
    if len(items) <= limit:
        return items
    return [items[round(index * (len(items) - 1) / (limit - 1))] for index in range(limit)]


def _example(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of engine.telemetry.sample_previews.SamplePreview, with checked types."""
    texts = {name: str(item[name])[:_MAX_LENGTH] for name in ("name", "question", "expected", "answer")}
    blind, right = item.get("blind"), item.get("right")
    return {
        **texts,
        "blind": str(blind)[:_MAX_LENGTH] if blind is not None else None,
        "right": right if isinstance(right, bool) else None,
        "picture": _png(item.get("picture")),
    }


def _png(picture: object) -> str | None:
    """Return the picture if it is a PNG in base64, else None: the page contains nothing else."""
    if not isinstance(picture, str):
        return None
    try:
        # 16 characters are 12 bytes, of which a PNG's signature takes 8.
        head = base64.b64decode(picture[:16], validate=True)
    except (binascii.Error, ValueError):
        return None
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", picture) is not None
    return picture if is_base64 and head.startswith(_PNG) else None
