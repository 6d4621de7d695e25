"""Writes what a model answered to each sample of a test, `answers-test.jsonl`, by which runs are compared.

The first line is the header, `{"version": 1, "metric": "test/accuracy"}`; each other line has the fields
of `GradedAnswer`. Samples are in ascending order, so the file is the same for every world size.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.io.atomic_file import write_atomically

VERSION = 1
FILE = "answers-test.jsonl"

_MAX_LENGTH = 500
"""Characters of a text that are kept."""


class GradedAnswer(NamedTuple):
    """An answer of a model to a sample of a test."""

    sample: int  # index in the test set
    question: str  # what was asked besides the picture or the series; of an image, its name
    expected: str
    answer: str
    points: float  # reached by the metric's measure
    possible: float = 1.0


def write_graded_answers(folder: Path, metric: str, answers: Iterable[GradedAnswer]) -> Path | None:
    """Write the answers of a test into a run's folder.

    Args:
        folder: the run's folder.
        metric: name of the metric, the sum of the points over the sum of the possible points: `test/accuracy`.
        answers: answers to different samples.

    Returns:
        Path of the file; None without answers.

    Raises:
        OSError: the disk refused the file; an existing file is unchanged.
    """
    ordered = sorted(answers)
    if not ordered:
        return None
    header = {"version": VERSION, "metric": metric}
    lines = [header, *(_cut(answer)._asdict() for answer in ordered)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path = folder / FILE
    # "replace": a lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    write_atomically(path, text.encode("utf-8", "replace"))
    return path


def _cut(answer: GradedAnswer) -> GradedAnswer:
    texts = {name: getattr(answer, name)[:_MAX_LENGTH] for name in ("question", "expected", "answer")}
    return answer._replace(**texts)
