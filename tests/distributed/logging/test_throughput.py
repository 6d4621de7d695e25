"""Throughput metrics are computed over all ranks."""

import pytest

from tests.support.families.tiny_temporal import TINY_TEMPORAL

PER_SAMPLE = ("train/tokens_per_second", "train/supervised_tokens_per_second", "train/feature_tokens_per_second")


@pytest.mark.slow
def test_a_sample_has_as_many_tokens_on_two_processes_as_on_one(lockstep, team):
    options = [*TINY_TEMPORAL, "--trainer.max_steps", "4", "--throughput.peak_tflops", "1"]
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *options, name="pair", processes=2).succeeded(120)
    for name in PER_SAMPLE:
        one, second = (
            {step: rate / run.series("train/samples_per_second")[step] for step, rate in run.series(name).items()}
            for run in (alone, pair)
        )
        assert len(one) == 4, name
        assert one == pytest.approx(second), name
    shares = pair.series("train/mfu"), pair.series("train/tflops")
    assert all(shares[0][step] == pytest.approx(rate / 2) for step, rate in shares[1].items())
    assert all(0 <= share <= 1 for share in pair.series("train/data_wait").values())
