"""Checks that a command with nothing to do reports it."""

import pytest

from tests.conftest import TINY


@pytest.mark.parametrize(("command", "limit"), [("fit", "train"), ("validate", "val"), ("test", "test")])
def test_a_limit_of_no_batches(lockstep, command, limit, tmp_path):
    (tmp_path / "runs/a/checkpoints").mkdir(parents=True)
    if command != "fit":
        (tmp_path / "runs/a/checkpoints/best.ckpt").touch()
    with pytest.raises(ValueError, match=f"trainer.limit_{limit}_batches is 0, so {command} would do nothing"):
        lockstep(command, *TINY, f"--trainer.limit_{limit}_batches", "0", name="a")


@pytest.mark.parametrize("name", ["max_steps", "max_epochs"])
def test_a_fit_of_no_steps(lockstep, name):
    with pytest.raises(ValueError, match=f"trainer.{name} is 0, so fit would do nothing"):
        lockstep("fit", *TINY, f"--trainer.{name}", "0", name="a")
