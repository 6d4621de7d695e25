"""configs/overlays/debug.yaml on two processes."""

import pytest

from tests.conftest import REPOSITORY, TINY

pytestmark = pytest.mark.distributed

DEBUG = ["--config", str(REPOSITORY / "configs/overlays/debug.yaml")]
ONE_NODE = ["--trainer.devices", "2", "--trainer.max_epochs", "4"]


@pytest.mark.parametrize("from_the_environment", [False, True])
def test_two_processes_learn_one_batch_and_survive_detail(team, from_the_environment):
    """Plain PyTorch 2.13: TORCH_DISTRIBUTED_DEBUG=DETAIL over gloo is a segmentation fault in DDP's constructor."""
    detail = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if from_the_environment else {}
    unset = ["--distributed_debug", "null"] if from_the_environment else []
    run = team("fit", *TINY, *DEBUG, *ONE_NODE, *unset, name="a", environment=detail)
    assert run.end(120) == [0, 0], run.output
    assert run.said[0].count("INFO instead of DETAIL") == 1
    assert sorted(run.series("train/loss")) == [1, 2, 3, 4]
