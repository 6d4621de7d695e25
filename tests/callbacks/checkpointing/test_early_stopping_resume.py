"""Tests EarlyStopping: a stopped run resumes with more patience, and a metric that is not logged is refused."""

import re
from pathlib import Path

import pytest
from lightning.fabric.utilities.exceptions import MisconfigurationException

from engine.distributed.errors import CollectiveInputError
from tests.conftest import TINY
from tests.support.families.tiny_linear import TINY_FAMILY

STOP = [
    "--trainer.callbacks+",
    "EarlyStopping",
    "--trainer.callbacks.monitor",
    "val/ndcg@10",
    "--trainer.callbacks.mode",
    "max",
    "--trainer.callbacks.min_delta",
    "1",
    "--trainer.callbacks.patience",
]


def test_a_run_that_stopped_early_resumes_with_more_patience(lockstep):
    """No epoch is better by 1, so a run stops when its patience ends."""
    options = [*TINY, "--trainer.max_epochs", "9"]
    stopped = lockstep("fit", *options, *STOP, "1", name="a")
    assert sorted(stopped.series("val/ndcg@10")) == [13, 26]
    resumed = lockstep("fit", *options, *STOP, "3", "--ckpt_path", "last", name="a")
    assert sorted(resumed.series("val/ndcg@10")) == [13, 26, 39, 52]


def test_a_patience_of_zero_trains_until_the_first_evaluation_without_improvement(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_epochs", "9", *STOP, "0", name="a")
    assert sorted(run.series("val/ndcg@10")) == [13, 26]
    again = lockstep("fit", *TINY, "--trainer.max_epochs", "9", *STOP, "0", "--ckpt_path", "last", name="a")
    assert sorted(again.series("val/ndcg@10")) == [13, 26]


def test_a_metric_that_is_not_logged_is_refused_before_the_first_step(lockstep):
    """Lightning raises after the first epoch."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.max_steps", "6"]
    message = r"monitor of EarlyStopping is 'val/foo', which is not logged. .* \['val/loss'\]"
    stop = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor"]
    with pytest.raises(MisconfigurationException, match=message):
        lockstep("fit", *options, *stop, "val/foo", name="a")
    assert not Path("runs/a/gradients").exists(), "no step was taken"
    lockstep("fit", *options, *stop, "train/loss", name="b")


def test_a_metric_that_is_not_logged_is_refused_after_the_first_validation_without_a_sanity_check(lockstep):
    """Lightning raises a RuntimeError, which the user would see with a traceback."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.max_steps", "6"]
    stop = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/foo"]
    message = r"monitor of EarlyStopping is 'val/foo', which is not logged. .* \['val/loss'\]"
    with pytest.raises(SystemExit) as end:
        lockstep("fit", *options, *stop, "--trainer.num_sanity_val_steps", "0", name="a")
    assert end.value.code == 2
    assert isinstance(end.value.__cause__, CollectiveInputError)
    assert re.search(message, str(end.value.__cause__))


def test_without_a_validation_its_metric_is_refused_before_the_first_step(lockstep):
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.max_steps", "6"]
    stop = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor"]
    unvalidated = ["--trainer.limit_val_batches", "0"]
    with pytest.raises(MisconfigurationException, match="limit_val_batches is 0, so EarlyStopping has no val/loss"):
        lockstep("fit", *options, *stop, "val/loss", *unvalidated, name="a")
    assert not Path("runs/a/gradients").exists(), "no step was taken"
    lockstep("fit", *options, *stop, "train/loss", *unvalidated, name="b")
