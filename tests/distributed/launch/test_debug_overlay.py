"""Tests configs/overlays/debug.yaml on two ranks."""

import pytest

from tests.conftest import REPOSITORY, TINY

DEBUG = ["--config", str(REPOSITORY / "configs/overlays/debug.yaml")]


@pytest.mark.slow
@pytest.mark.parametrize("option", [[], ["--distributed_debug", "DETAIL"]])
def test_two_processes_learn_one_batch(team, option):
    """Plain PyTorch 2.13: TORCH_DISTRIBUTED_DEBUG=DETAIL over gloo is a segmentation fault in DDP's constructor."""
    run = team("fit", *TINY, *DEBUG, "--trainer.devices", "2", "--trainer.max_epochs", "4", *option, name="a")
    assert run.end(120) == [0, 0], run.output
    assert run.logs[0].count("TORCH_DISTRIBUTED_DEBUG=INFO") == len(option) // 2
    assert sorted(run.series("train/loss")) == [1, 2, 3, 4]
