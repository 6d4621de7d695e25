"""What examples/val-STEP.json tell: the same samples and their answers at several steps, in a bounded size."""

import base64
import binascii
import json
import re
from pathlib import Path
from typing import Any

STEPS = 12
"""At most so many evaluations are shown: the first, the newest and some between."""

_LARGEST = 4 << 20
"""Bytes of base64 of a run's pictures, all together; what is beyond is left out, and said to be."""

_PNG = b"\x89PNG\r\n\x1a\n"
_LONGEST = 4000


def read_examples(folder: Path, largest: int = _LARGEST) -> dict[str, Any]:
    """`{steps: [{step, answers: {name: {answer, right}}}], samples: {name: {question, expected, picture}}, ...}`.

    A file that is not whole is passed over and counted.
    """
    numbered = {int(match[1]): path for path in folder.glob("val-*.json") if (match := _STEP.match(path.name))}
    steps: list[dict[str, Any]] = []
    samples: dict[str, dict[str, str]] = {}
    pictures, unreadable = _Pictures(largest), 0
    for step in evenly(sorted(numbered), STEPS):
        try:
            shown = [_example(item) for item in json.loads(numbered[step].read_text(encoding="utf-8"))["examples"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            unreadable += 1
            continue
        answers = {}
        for example in shown:
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
        "left_out": pictures.left_out,
    }


class _Pictures:
    """Each once, however often it is shown; all together not more than so many bytes."""

    def __init__(self, largest: int) -> None:
        self.keys: dict[str, str] = {}
        self.left_out, self._room = 0, largest

    def key(self, picture: str | None) -> str | None:
        if picture is None:
            return None
        if picture not in self.keys:
            if len(picture) > self._room:
                self.left_out += 1
                return None
            self._room -= len(picture)
            self.keys[picture] = f"p{len(self.keys)}"
        return self.keys[picture]


def evenly(items: list[Any], most: int) -> list[Any]:
    """The first, the last, and of those between as many as fit, in even distances."""
    if len(items) <= most:
        return items
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def _example(item: dict[str, Any]) -> dict[str, Any]:
    """What engine.examples.Example has, each of its kind."""
    texts = {name: str(item[name])[:_LONGEST] for name in ("name", "question", "expected", "answer")}
    blind, right = item.get("blind"), item.get("right")
    return {
        **texts,
        "blind": str(blind)[:_LONGEST] if blind is not None else None,
        "right": right if isinstance(right, bool) else None,
        "picture": _png(item.get("picture")),
    }


def _png(picture: Any) -> str | None:
    """A picture as it stands, if it is one: nothing else is put into the page."""
    if not isinstance(picture, str):
        return None
    try:
        head = base64.b64decode(picture[:16], validate=True)
    except (binascii.Error, ValueError):
        return None
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", picture) is not None
    return picture if is_base64 and head.startswith(_PNG) else None


_STEP = re.compile(r"val-(\d+)\.json$")
