"""Checks that a command with nothing to do reports it."""

import pytest

from engine.distributed.errors import is_user_error
from tests.conftest import TINY
from tests.support.families.tiny_linear import TINY_FAMILY


@pytest.mark.parametrize(("command", "limit"), [("fit", "train"), ("validate", "val"), ("test", "test")])
def test_a_limit_of_no_batches_is_refused(lockstep, command, limit, tmp_path):
    (tmp_path / "runs/a/checkpoints").mkdir(parents=True)
    if command != "fit":
        (tmp_path / "runs/a/checkpoints/best.ckpt").touch()
    with pytest.raises(ValueError, match=f"trainer.limit_{limit}_batches is 0, so {command} would do nothing"):
        lockstep(command, *TINY, f"--trainer.limit_{limit}_batches", "0", name="a")


def test_a_limit_of_less_than_a_step_is_refused(lockstep):
    with pytest.raises(ValueError, match="trainer.limit_train_batches 0.01 of the .* less than a step") as caught:
        lockstep("fit", *TINY, "--trainer.limit_train_batches", "0.01", name="a")
    assert is_user_error(caught.value)


@pytest.mark.parametrize("name", ["max_steps", "max_epochs"])
def test_a_fit_of_no_steps_is_refused(lockstep, name):
    with pytest.raises(ValueError, match=f"trainer.{name} is 0, so fit would do nothing"):
        lockstep("fit", *TINY, f"--trainer.{name}", "0", name="a")


def test_fewer_epochs_than_the_checkpoint_has_finished(lockstep):
    """A run that resumes with fewer epochs than it has finished exits with 2, in a message of our own."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.limit_train_batches", "1"]
    lockstep("fit", *options, "--trainer.max_epochs", "4", name="a")
    with pytest.raises(ValueError, match="trainer.max_epochs: found 3, expected at least 4, the finished") as caught:
        lockstep("fit", *options, "--trainer.max_epochs", "3", "--ckpt_path", "last", name="a")
    assert is_user_error(caught.value)
    assert "last.ckpt" in str(caught.value)
    assert "\n" not in str(caught.value)
    lockstep("fit", *options, "--trainer.max_epochs", "4", "--ckpt_path", "last", name="a")
