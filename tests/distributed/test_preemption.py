"""A run that is told to stop, to one process or to all, at any moment: it saves, ends together, goes on exactly."""

import signal

import pytest

from tests.conftest import TINY
from tests.distributed.faults import fault

pytestmark = pytest.mark.distributed

OPTIONS = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_epochs", "-1", "--trainer.max_steps", "40"]
EVERY_STEP = ["--preemption.check_every_n_steps", "1"]


@pytest.fixture(scope="module")
def through(forge, tmp_path_factory):
    """The series of a run of two processes that nothing disturbed."""
    from tests.distributed.team import Team

    run = Team(forge, ["fit", *OPTIONS], tmp_path_factory.mktemp("through"), "through", processes=2)
    assert run.end() == [0, 0], run.output
    return run


def same(one, other, tolerance=0.0):
    for metric in ("train/loss", "val/ndcg@10"):
        ours, theirs = one.series(metric), other.series(metric)
        assert ours.keys() == theirs.keys(), f"{metric}: not the same steps"
        assert all(abs(ours[step] - theirs[step]) <= tolerance for step in ours), metric


@pytest.mark.parametrize(("name", "process", "code"), [
    ("SIGTERM", 1, 143), ("SIGTERM", -1, 143), ("SIGINT", 0, 130), ("SIGUSR1", 1, 143),
])
def test_told_between_two_steps(team, through, name, process, code):
    told = fault("SignalAt", name=name, step=17, process=process)
    run = team("fit", *OPTIONS, *EVERY_STEP, *told, name="a")
    assert run.end() == [code, code], run.output
    assert run.survivors == []
    print(run.output)
    assert f"stopped by {name} after step 18, saved; go on with the same command and --ckpt_path last" in run.said[0]
    again = team("fit", *OPTIONS, "--ckpt_path", "last", name="a")
    assert again.end() == [0, 0], again.output
    assert "going on after step 18" in again.output
    same(again, through)
