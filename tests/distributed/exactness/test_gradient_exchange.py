"""Gradients in 16 bits or in other DDP buckets: replicas stay equal, and losses stay close."""

import re

import pytest
import torch

from tests.support.ranks.exact_training import OPTIONS, gradients, micro, same_training
from tests.tiers import slow

BF16 = ["--ddp.compression", "bf16"]
GUARDED = ["--replica_consistency.every_n_steps", "1"]

NEAR = 2.0**-8
"""bfloat16 has 8 bits: each part of the gradient and their sum are off by at most half of the last bit."""


@pytest.fixture
def pair(team):
    def start(name, *options, processes=2):
        run = team("fit", *OPTIONS, *GUARDED, *options, name=name, processes=processes)
        assert run.end(120) == [0] * processes, run.output
        return run

    return start


def as_sent(gradient):
    return gradient.to(torch.bfloat16).float()


@pytest.mark.parametrize("options", [[], slow(micro(2))], ids=["whole", "accumulated"])
def test_bf16_is_as_near_to_one_process_as_its_bits_allow(lockstep, pair, options):
    alone = lockstep("fit", *OPTIONS, name="alone")
    both = pair("both", *BF16, *options)
    reported = re.search(r"gradients: ([\d,]+) bytes a step are sent as ([\d,]+) of bf16", both.output)
    total, sent = (int(number.replace(",", "")) for number in reported.groups())
    assert total == 2 * sent > 0
    ours, theirs = gradients(both), gradients(alone)
    # The first step has the same weights; 8 terms a sample at most make parts that are larger than their sum.
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=2 * NEAR * theirs[0].abs().max().item())
    assert not torch.equal(ours, theirs), "nothing was rounded"
    losses, references = both.series("train/loss"), alone.series("train/loss")
    assert losses.keys() == references.keys()
    assert max(abs(losses[step] / references[step] - 1) for step in losses) < 0.01
    assert abs(both.series("val/loss")[14] / alone.series("val/loss")[14] - 1) < 0.01


@pytest.mark.slow
def test_a_resumed_run_rounds_gradients_alike(pair):
    """Also in the first step of a start, whose gradients DDP's reducer does not see."""
    through = pair("through", *BF16)
    pair("stopped", *BF16, "--trainer.max_steps", "11")
    resumed = pair("stopped", *BF16, "--ckpt_path", "last")
    assert resumed.series("train/loss") == through.series("train/loss")
    # GlobalLossMean multiplies what was received, so the values themselves have more bits than were sent.
    assert not torch.equal(gradients(through), as_sent(gradients(through)))


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], slow(micro(2))], ids=["whole", "accumulated"])
def test_the_size_of_buckets_changes_nothing(lockstep, pair, options):
    alone = lockstep("fit", *OPTIONS, name="alone")
    small = ["--ddp.bucket_mb", "0.00001"]
    views = ["--trainer.strategy", "DDPStrategy", "--trainer.strategy.gradient_as_bucket_view", "true"]
    same_training(pair("several", *small, *views, *options), alone)


def test_the_size_of_buckets_reaches_ddp(pair):
    """DDPOptions refuses a DDP that was built with another size."""
    pair("small", "--ddp.bucket_mb", "0.00001", "--trainer.max_steps", "2")


def test_compression_has_no_effect_on_one_rank(lockstep):
    alone = lockstep("fit", *OPTIONS, name="alone")
    reported = lockstep("fit", *OPTIONS, *BF16, "--ddp.bucket_mb", "1", name="reported")
    assert torch.equal(gradients(reported), gradients(alone))
    assert "the settings have no effect with one rank" in (reported.folder / "train.log").read_text()


def test_fp16_without_a_loss_scale_is_refused(team):
    run = team("fit", *OPTIONS, "--ddp.compression", "fp16", name="a", processes=2)
    assert run.end() != [0, 0]
    assert "needs the loss scale of trainer.precision 16-mixed" in run.output
