"""Tests that synthetic curves are physically possible."""

import numpy as np
import pytest

from datamodules.temporal.timelines.channels import CHANNELS
from datamodules.temporal.timelines.synthetic import patterns
from datamodules.temporal.timelines.synthetic.curves import (
    Column,
    PhysicsError,
    check_physics,
    draw_column,
    draw_job,
    draw_present,
)
from datamodules.temporal.timelines.synthetic.patterns import POD, SEED


def generator(index):
    return np.random.Generator(np.random.Philox(key=index))


@pytest.mark.parametrize("steps", [10, 16, 33, 100, 1000])
@pytest.mark.parametrize("pattern", SEED + POD, ids=lambda pattern: pattern.__name__)
def test_every_pattern_is_smooth_except_at_marked_steps(pattern, steps):
    for index in range(100):
        shares, jumps = pattern(generator(index), steps)
        assert shares.shape == (steps,)
        assert all(0 <= jump <= steps for jump in jumps)
        allowed = np.zeros(steps + 1, bool)
        allowed[jumps] = True
        check_physics([Column(shares.clip(0, 1), allowed[:steps], 0.0)], ["one"], pattern.__name__)


@pytest.mark.parametrize("steps", [10, 16, 100])
def test_columns_with_all_that_may_happen_to_them_are_physical(steps):
    for index in range(500):
        random = generator(index)
        job = draw_job(random, steps) if index % 2 else None
        for channel in CHANNELS:
            column = draw_column(random, steps, channel, job, noise=0.15, drop_probability=0.9, pod_share=0.5)
            check_physics([column], [channel.key], f"column {index}")


def test_a_curve_that_no_machine_can_have_is_refused_with_its_step():
    shares, still = np.full(20, 0.5), np.zeros(20, bool)
    quiet = Column(np.ones(20), still, 0.0)

    def check(noise=0.0):
        check_physics([quiet, Column(shares, still, noise)], ["cpu_cores", "gpu_sm"], "sample 3")

    check()
    shares[7] = 0.9
    with pytest.raises(PhysicsError, match=r"sample 3, gpu_sm, step 7: found a change of 0\.400 .* at most 0\.300"):
        check()
    check(noise=0.02)
    still[[7, 8]] = True
    check()
    shares[7] = 1.5
    with pytest.raises(PhysicsError, match=r"sample 3, gpu_sm: found shares from 0\.5 to 1\.5"):
        check()
    shares[:] = np.nan
    with pytest.raises(PhysicsError, match="gpu_sm: found shares from nan"):
        check()


def test_exponential_decay_reaches_its_end():
    """The seed's stops at 95 % of its way."""
    ends = {round(float(v), 9) for i in range(50) for v in patterns.exponential(generator(i), 30)[0][[0, -1]]}
    assert min(ends) < 0.3
    assert max(ends) > 0.7
    for index in range(50):
        shares, _ = patterns.exponential(generator(index), 30)
        assert {shares.min(), shares.max()} == {shares[0], shares[-1]}


def test_a_job_moves_all_channels_together():
    moved = 0
    for index in range(100):
        random = generator(index)
        job = draw_job(random, 60)
        columns = [
            draw_column(random, 60, channel, job, noise=0, drop_probability=0, pod_share=0).shares
            for channel in CHANNELS
        ]
        moved += np.corrcoef(columns[1], columns[3])[0, 1] > 0.9
    assert moved > 80


def test_samples_get_lost_but_never_most_of_them():
    lost = [draw_present(generator(index), 40) for index in range(300)]
    assert all(present.mean() >= 0.6 for present in lost)
    assert sum(not present.all() for present in lost) > 250
