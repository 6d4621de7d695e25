"""A training ends with weights that have been validated, wherever its last step lies."""

import pytest

from tests.support.families.tiny_linear import TINY_FAMILY
from tests.tiers import slow

OPTIONS = [*TINY_FAMILY, "--data.init_args.batch_size", "10"]  # 5 steps in an epoch


def options(**trainer):
    return [*OPTIONS, *(f"--trainer.{key}={str(value).lower()}" for key, value in trainer.items())]


@pytest.mark.parametrize(
    ("trainer", "validated"),
    [
        ({"max_steps": 3}, [3]),  # inside the first epoch
        ({"max_steps": 8}, [5, 8]),
        slow({"max_steps": 10}, [5, 10]),  # at the end of an epoch, where a validation is due
        ({"max_epochs": 3, "check_val_every_n_epoch": 2}, [10, 15]),
        slow({"max_steps": 13, "check_val_every_n_epoch": 2}, [10, 13]),
        slow({"max_steps": 7, "val_check_interval": 3, "check_val_every_n_epoch": "null"}, [3, 6, 7]),
        slow({"max_steps": 6, "val_check_interval": 3, "check_val_every_n_epoch": "null"}, [3, 6]),
    ],
)
@pytest.mark.parametrize("micro_batch", [10, slow(5)])
def test_a_validation_follows_the_last_step_and_none_runs_twice(lockstep, trainer, validated, micro_batch):
    run = lockstep("fit", *options(**trainer), f"--data.init_args.micro_batch_size={micro_batch}", name="a")
    assert list(run.series("val/loss")) == validated
    assert (run.folder / "checkpoints/best.ckpt").exists()


@pytest.mark.slow
def test_a_stream_is_validated_at_its_last_step_too(lockstep):
    run = lockstep("fit", *options(max_steps=8), "--data.init_args.stream", "true", name="a")
    assert list(run.series("val/loss")) == [5, 8]


def test_a_training_without_validations_has_none_at_its_end(lockstep):
    run = lockstep("fit", *options(max_steps=3, limit_val_batches=0), name="a")
    assert not run.series("val/loss")
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["last.ckpt"]


def test_a_resumed_training_equals_an_uninterrupted_one(lockstep):
    through = lockstep("fit", *options(max_steps=12), name="through")
    lockstep("fit", *options(max_steps=8), name="a")
    resumed = lockstep("fit", *options(max_steps=12), "--ckpt_path", "last", name="a")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert list(resumed.series("val/loss")) == [5, 8, 10, 12]
    assert resumed.series("val/loss")[12] == through.series("val/loss")[12]
    again = lockstep("fit", *options(max_steps=12), "--ckpt_path", "last", name="a")
    assert list(again.series("val/loss")) == [5, 8, 10, 12], "a finished run has nothing to do"
