"""Tests that a column is constructed where sampling finds none that matches a question."""

import numpy as np
import pytest

from datamodules.temporal.timelines.channels import CHANNELS, Format, Scale
from datamodules.temporal.timelines.synthetic.curves import check_physics, draw_column, draw_present
from datamodules.temporal.timelines.synthetic.question_sampler import QuestionSpec, construct_matching_column, matches
from datamodules.temporal.timelines.text.facts import Direction, StartTime, Task

SPECS = [QuestionSpec(Task.TREND, direction=direction) for direction in Direction] + [
    QuestionSpec(Task.FEASIBILITY, verdict=verdict, share=share)
    for verdict in StartTime
    for share in (0.05, 0.3, 0.6, 0.95)
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.direction or spec.verdict} {spec.share}")
@pytest.mark.parametrize("format", Format)
def test_a_matching_column_is_constructed_where_sampling_finds_none(spec, format):
    for index in range(300):
        random = np.random.Generator(np.random.Philox(key=index))
        channel = CHANNELS[index % 4]
        scale = Scale.for_channel(channel, format, channel.capacities[0])  # the coarsest
        present = draw_present(random, 16)
        column = draw_column(random, 16, channel, None, noise=0.03, drop_probability=0.2, pod_share=0.5)
        if matches(spec, scale.levels(column.shares), present, scale.top):
            continue
        made = construct_matching_column(random, spec, column, scale, present)
        assert matches(spec, scale.levels(made.shares), present, scale.top)
        check_physics([made], [channel.key], "made to measure")
