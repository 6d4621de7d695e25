"""Checks that a measured step equals the step of a run, and that both variants do the same work."""

import inspect

import pytest

from benchmarks.recommender.bfloat16 import loss_after
from benchmarks.recommender.loading import vectorized
from benchmarks.recommender.training_steps import LENGTH_GROUPS, ModuleAlone, sasrec_step, step_with_loader
from benchmarks.recommender.whole_training import whole_training
from datamodules.recommender.datamodule import InteractionSequences
from lightning_modules.recommender.module import SequentialRecommender


def test_a_batch_has_as_many_parts_as_in_a_run() -> None:
    assert inspect.signature(InteractionSequences).parameters["length_groups"].default == LENGTH_GROUPS


def test_the_loss_is_that_of_a_run() -> None:
    assert ModuleAlone.training_loss is SequentialRecommender.training_loss


def test_both_variants_train_on_the_same_sequences() -> None:
    sizes = {"num_users": 7, "batch_size": 4, "length": 20, "batches": 2}
    assert sasrec_step("plain", **sizes)().amount == sasrec_step("ours", **sizes)().amount == 7


@pytest.mark.parametrize("loss", ["cross_entropy", "bce"])
def test_both_variants_train_on_the_same_sequences_with_their_loaders(loss: str) -> None:
    sizes = {"num_users": 7, "batch_size": 4, "length": 20, "batches": 2}
    assert whole_training("plain", loss, **sizes)().amount == whole_training("ours", loss, **sizes)().amount == 7


def test_bfloat16_is_another_loss_but_not_far() -> None:
    assert sasrec_step("ours", num_users=7, batch_size=4, length=20, bf16=True)().amount == 7
    exact, rough = (loss_after(3, bf16, num_users=4, length=10) for bf16 in (False, True))
    assert exact != rough
    assert abs(rough / exact - 1) < 0.05


def test_an_epoch_through_the_loader_counts_steps_and_waiting() -> None:
    sizes = {"num_users": 7, "batch_size": 4, "length": 20}
    steps, waited = step_with_loader("time_interval", **sizes)()
    assert steps == 2
    assert waited > 0
    assert vectorized(True, **sizes)().amount == 2
