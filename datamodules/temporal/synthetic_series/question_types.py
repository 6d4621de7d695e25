"""Generates questions about series. Each of a question's options is right equally often.

The answer is drawn first, uniformly, and the series are made for it. Then each series is brought to the same range and
gets an offset, a scale, a name and a length that are drawn independently of the answer. So the texts alone do not
depend on the answer, and a blind model is at chance.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from datamodules.temporal.series.series_question import InputSeries
from datamodules.temporal.synthetic_series.shapes import Shape, bump, noise, season, slope, smooth, unit_range

NAMES = (("load", "kW"), ("flow", "l/s"), ("pressure", "bar"), ("price", "EUR"), ("speed", "m/s"), ("sales", ""))
"""Names and units of series."""

_STEPS = (1.0, 60.0, 300.0, 3600.0)  # lengths of a step, in seconds
_DECIMALS = 5  # of a share of the range; measurements have few digits
_PERIODS = (4, 8, 12)  # steps of a cycle
_WIDE = 15  # steps over which a curve is smooth

Random = np.random.Generator


class GeneratedQuestion(NamedTuple):
    """A question with its series and its answer."""

    kind: str
    question: str
    options: tuple[str, ...]
    answer: str
    series: tuple[InputSeries, ...]


class _QuestionType(NamedTuple):
    question: str
    options: tuple[str, ...]
    shapes: Callable[[Random, int, int], tuple[Shape, ...]]  # (random, steps, index of the answer)


def draw_question(random: Random, kind: str, min_steps: int, max_steps: int) -> GeneratedQuestion:
    """Draw a question of a kind."""
    question, options, shapes = KINDS[kind]
    answer = int(random.integers(len(options)))
    steps = int(random.integers(min_steps, max_steps + 1))
    found = shapes(random, steps, answer)
    names = random.permutation(len(NAMES))[: len(found)]
    period = float(random.choice(_STEPS))
    series = tuple(
        # A series of a comparison may have steps of twice the length, and half as many.
        _measure(random, shape, NAMES[name], period * (2 if len(shape) < steps else 1))
        for shape, name in zip(found, names, strict=True)
    )
    return GeneratedQuestion(kind, question, options, options[answer], series)


def _measure(random: Random, shape: Shape, name: tuple[str, str], step: float) -> InputSeries:
    """Return a shape as measurements, with a random offset and scale."""
    scale = float(f"{10 ** random.uniform(-1, 3):.2g}")
    offset = float(f"{scale * random.uniform(-3, 3):.2g}")
    return InputSeries(*name, offset + scale * np.round(unit_range(shape), _DECIMALS), step)


def _trend(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    rise = random.uniform(1.5, 4) * (1, -1, 0)[answer]
    wave = random.uniform(0, 0.4) * season(random, steps, random.uniform(5, 12))
    return (slope(steps, rise) + wave + noise(random, steps, random.uniform(0.1, 0.4)),)


def _season(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    size = random.uniform(0.05, 0.3)
    if answer == len(_PERIODS):
        return (noise(random, steps, 1.0),)
    return (season(random, steps, _PERIODS[answer]) + noise(random, steps, size) + slope(steps, random.uniform(-1, 1)),)


def _outlier(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    shape = smooth(random, steps, 5) * 0.5 + noise(random, steps, 0.15)
    if answer < 3:
        # The step of the extremum is not at the border of two thirds, where the answer would be ambiguous.
        third = steps / 3
        step = int(random.integers(int(np.ceil(answer * third)) + 1, int((answer + 1) * third) - 1))
        shape[step] += random.choice((-1, 1)) * random.uniform(4, 7)
    return (shape,)


def _correlation(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    first = smooth(random, steps, _WIDE)
    if answer < 2:
        second = first * (1, -1)[answer]
    else:
        # Two random smooth curves often correlate by chance, so the least correlated of eight is taken.
        candidates = [smooth(random, steps, _WIDE) for _ in range(8)]
        second = min(candidates, key=lambda other: abs(float(np.corrcoef(first, other)[0, 1])))
    return first + noise(random, steps, 0.1), second + noise(random, steps, 0.1)


def _lag(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    delay = int(random.integers(4, 8)) * (1, -1, 0)[answer]
    # The second series repeats what the first showed `delay` steps before: an event, and its smaller echo.
    # Room of 8 steps on both sides for the delay, which is at most 7.
    length = steps + 16
    center = random.uniform(0.35, 0.65)
    base = bump(length, center, random.uniform(0.05, 0.1)) * random.choice((-1, 1))
    base = base + 0.4 * bump(length, center + random.choice((-1, 1)) * random.uniform(0.15, 0.25), 0.06)
    first, second = base[8 : 8 + steps], base[8 - delay : 8 - delay + steps]
    return first + noise(random, steps, 0.03), second + noise(random, steps, 0.03)


def _comparison(random: Random, steps: int, answer: int) -> tuple[Shape, ...]:
    early = random.uniform(0.1, 0.6)
    late = random.uniform(early + 0.25, 0.95)
    centers = (early, late) if answer == 0 else (late, early)
    lengths = [steps, steps // 2 if random.random() < 0.5 else steps]
    if random.random() < 0.5:
        lengths.reverse()
    first, second = (
        bump(length, center, random.uniform(0.08, 0.2)) + noise(random, length, 0.05)
        for length, center in zip(lengths, centers, strict=True)
    )
    return first, second


KINDS = {
    "trend": _QuestionType("What is the trend?", ("rising", "falling", "flat"), _trend),
    "season": _QuestionType("How long is the season?", (*(f"{n} steps" for n in _PERIODS), "no season"), _season),
    "outlier": _QuestionType(
        "Where is the outlier?", ("first third", "middle third", "last third", "nowhere"), _outlier
    ),
    "correlation": _QuestionType("How do the two move?", ("together", "opposite", "independently"), _correlation),
    "lag": _QuestionType("Which series leads?", ("the first", "the second", "neither"), _lag),
    "comparison": _QuestionType("Which series peaks first?", ("the first", "the second"), _comparison),
}
"""Kinds of questions by name."""
