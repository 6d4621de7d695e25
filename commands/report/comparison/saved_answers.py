"""Reads the answers that the latest test of a run has saved, and checks that they match the metric in metrics.jsonl."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commands.report.metric_series import OtherSettingsError, latest_value
from engine.io.json_records import parse_json
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options
from engine.telemetry.graded_answers import FILE, VERSION, GradedAnswer

_ROUNDING = 1e-4
"""Difference of a metric that was summed in 32 or 16 bits, with a margin."""


class SavedAnswers(NamedTuple):
    """Answers of a test, in ascending order of the samples."""

    metric: str  # `test/accuracy`
    answers: Sequence[GradedAnswer]  # with at least one possible point


def read_answers(folder: Path) -> SavedAnswers | None:
    """Read the answers of a run; None without a file.

    Raises:
        OtherSettingsError: the answers do not match the metric.
        ValueError: the file is truncated or has changed.
        OSError: the file cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        header, *lines = [parse_json(line) for line in path.read_bytes().splitlines()]
        if header["version"] != VERSION:
            raise ValueError(f"version {header['version']!r} instead of {VERSION}")
        answers = [_answer(line) for line in lines]
        samples = [answer.sample for answer in answers]
        if not answers or samples != sorted(set(samples)):
            raise ValueError("samples that are missing, out of order or twice")
        metric = str(header["metric"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: found {str(error)[:200]}; expected the answers of a test, as they were written: "
            f"`{PROGRAM} test {run_options(folder)}` writes them again"
        ) from error
    value = sum(answer.points for answer in answers) / sum(answer.possible for answer in answers)
    logged = latest_value(folder / "metrics.jsonl", metric)
    if logged is not None and not math.isclose(value, logged, abs_tol=_ROUNDING):
        raise OtherSettingsError(
            f"{path} has {metric} {value:.4f} and metrics.jsonl {logged:.4f}, because the latest test had other "
            f"settings than the run; `{PROGRAM} test {run_options(folder)}` writes the answers again"
        )
    return SavedAnswers(metric, answers)


def _answer(line: dict[str, Any]) -> GradedAnswer:
    answer = GradedAnswer(**line)
    numbers = (answer.points, answer.possible)
    # `type` and not isinstance, because a bool is an int.
    if type(answer.sample) is not int or not all(type(text) is str for text in answer[1:4]):
        raise ValueError(f"sample {str(answer.sample)[:50]} without number, question, expected answer and answer")
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError(f"sample {answer.sample} without points")
    if not 0 <= answer.points <= answer.possible or not answer.possible:
        raise ValueError(f"sample {answer.sample} with {answer.points} of {answer.possible} points")
    return answer
