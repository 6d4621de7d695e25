import numpy as np
import pytest

from datamodules.temporal.asking import Wish, agrees, made_to_measure
from datamodules.temporal.channels import CHANNELS, Format, Scale
from datamodules.temporal.curves import check_physics, draw_column, draw_present
from datamodules.temporal.facts import Direction, Task, Verdict

WISHES = [Wish(Task.TREND, direction=direction) for direction in Direction] + [
    Wish(Task.FEASIBILITY, verdict=verdict, share=share) for verdict in Verdict for share in (0.05, 0.3, 0.6, 0.95)
]


@pytest.mark.parametrize("wish", WISHES, ids=lambda wish: f"{wish.direction or wish.verdict} {wish.share}")
@pytest.mark.parametrize("format", Format)
def test_what_no_try_gave_is_made_to_measure(wish, format):
    for index in range(300):
        random = np.random.Generator(np.random.Philox(key=index))
        channel = CHANNELS[index % 4]
        scale = Scale.of(channel, format, channel.capacities[0])  # the coarsest
        present = draw_present(random, 16)
        column = draw_column(random, 16, channel, None, noise=0.03, drop_probability=0.2, pod_share=0.5)
        if agrees(wish, scale.levels(column.shares), present, scale.top):
            continue
        made = made_to_measure(random, wish, column, scale, present)
        assert agrees(wish, scale.levels(made.shares), present, scale.top)
        check_physics([made], [channel.key], "made to measure")
