"""Builds a sample from curves and the specification of a question."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.series_marker import SeriesPosition, insert_series_marker
from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Scale
from datamodules.temporal.timelines.synthetic.question_sampler import QuestionSpec, compute_facts
from datamodules.temporal.timelines.text.facts import Facts, Present
from datamodules.temporal.timelines.text.number_format import Notation
from datamodules.temporal.timelines.text.question_text import answer, question


class TimelineSample(NamedTuple):
    """A timeline of T steps and a question about one of its four channels (`channels.CHANNELS`)."""

    values: NDArray[np.float32]  # [T, 4] available share of the capacity, rounded to levels; 0 where not present
    present: NDArray[np.bool_]  # [T, 4]
    capacities: tuple[float, ...]  # [4] in the channels' units
    units: tuple[str, ...]  # [4] units of the written values
    step_ms: int
    question: str  # with PLACEHOLDER
    answer: str
    facts: Facts


def build_sample(
    random: np.random.Generator,
    spec: QuestionSpec,
    channel: int,
    shares: NDArray[np.float64],
    present: Present,
    capacities: tuple[float, ...],
    notation: Notation,
    series_position: SeriesPosition,
) -> TimelineSample:
    """Build the question of the specification about curves that are rounded to levels.

    Args:
        random: selects templates and, in a read-out, the steps.
        spec: the question to construct.
        channel: index of the queried channel.
        shares: [T, 4] available share of the capacity; arbitrary where not present.
        present: [T, 4].
        capacities: capacities in the channels' units.
        notation: notation of the texts.
        series_position: order of question and series.
    """
    scales = [
        Scale.for_channel(resource, notation.format, capacity)
        for resource, capacity in zip(CHANNELS, capacities, strict=True)
    ]
    tops = np.array([scale.top for scale in scales])
    levels = np.floor(shares * tops + 0.5).astype(np.int64)
    measured = present[:, channel]
    facts = compute_facts(
        random=random,
        spec=spec,
        channel=KEYS[channel],
        scale=scales[channel],
        step_ms=notation.step_ms,
        levels=levels[:, channel],
        present=measured,
    )
    text = question(facts, notation, lambda count: int(count * random.random()))
    return TimelineSample(
        # The encoder gets the rounded values, which the texts state.
        values=np.where(present, levels / tops, 0.0).astype(np.float32),
        present=present,
        capacities=tuple(map(float, capacities)),
        units=tuple(scale.unit for scale in scales),
        step_ms=notation.step_ms,
        question=insert_series_marker(text, series_position),
        answer=answer(facts, notation, lambda count: int(count * random.random())),
        facts=facts,
    )
