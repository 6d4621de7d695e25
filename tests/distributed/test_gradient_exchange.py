"""Gradients in 16 bits, in other portions, of a static graph: the replicas stay equal, the training nearly the same."""

import re

import pytest
import torch

from tests.conftest import TINY
from tests.distributed.faults import fault
from tests.distributed.test_exactness import OPTIONS, gradients, micro, same_training

pytestmark = pytest.mark.distributed

BF16 = ["--gradients.compression", "bf16"]
GUARDED = ["--replica_parity.every_n_steps", "1"]

NEAR = 2.0**-8
"""bfloat16 has 8 bits: each of the gradient's parts and their sum are off by half of the last one at most."""


@pytest.fixture
def pair(team):
    def start(name, *options, processes=2):
        run = team("fit", *OPTIONS, *GUARDED, *options, name=name, processes=processes)
        assert run.end(120) == [0] * processes, run.output
        return run

    return start


def as_sent(gradient):
    return gradient.to(torch.bfloat16).float()


@pytest.mark.parametrize("options", [[], micro(2)], ids=["whole", "accumulated"])
def test_bf16_is_as_near_to_one_process_as_its_bits_allow(lockstep, pair, options):
    alone = lockstep("fit", *OPTIONS, name="alone")
    both = pair("both", *BF16, *options)
    told = re.search(r"gradients: ([\d,]+) bytes a step are sent as ([\d,]+) of bf16", both.output)
    whole, sent = (int(figure.replace(",", "")) for figure in told.groups())
    assert whole == 2 * sent > 0
    ours, theirs = gradients(both), gradients(alone)
    # The first step has the same weights; 8 terms a sample at most make parts that are larger than their sum.
    torch.testing.assert_close(ours[0], theirs[0], rtol=0, atol=2 * NEAR * theirs[0].abs().max().item())
    assert not torch.equal(ours, theirs), "nothing was rounded"
    losses, references = both.series("train/loss"), alone.series("train/loss")
    assert losses.keys() == references.keys()
    assert max(abs(losses[step] / references[step] - 1) for step in losses) < 0.01
    assert abs(both.series("val/loss")[14] / alone.series("val/loss")[14] - 1) < 0.01


def test_what_is_rounded_is_the_same_after_a_stop(pair):
    """Also in the first step of a start, whose gradients DDP's reducer does not see."""
    through = pair("through", *BF16)
    pair("stopped", *BF16, "--trainer.max_steps", "11")
    resumed = pair("stopped", *BF16, "--ckpt_path", "last")
    assert resumed.series("train/loss") == through.series("train/loss")
    # ExactMean multiplies what was received, so the values themselves have more bits than were sent.
    assert not torch.equal(gradients(through), as_sent(gradients(through)))


@pytest.mark.parametrize("options", [[], micro(2)], ids=["whole", "accumulated"])
def test_portions_and_a_static_graph_change_nothing(lockstep, pair, options):
    alone = lockstep("fit", *OPTIONS, name="alone")
    several = ["--gradients.bucket_mb", "0.00001", "--gradients.static_graph", "true"]
    views = ["--trainer.strategy", "DDPStrategy", "--trainer.strategy.gradient_as_bucket_view", "true"]
    same_training(pair("several", *several, *views, *options), alone)


def test_a_static_graph_allows_for_a_part_without_gradients(team):
    options = [*TINY, "--trainer.max_steps", "3", *GUARDED, "--gradients.static_graph", "true"]
    run = team("fit", *options, *fault("SideBranch", unused_on=1), name="a", processes=2)
    assert run.end() == [0, 0], run.output
    assert "branch.weight" in run.output


def test_a_step_that_breaks_the_promise_of_a_static_graph_is_not_made(team):
    """Which DDP would make, of gradients that are each process's own."""
    options = [*TINY, "--trainer.max_steps", "2", "--gradients.static_graph", "true"]
    run = team("fit", *options, *fault("SideBranch", unused_on=-1, after=1), name="a", processes=2)
    assert run.end() != [0, 0], "the second step is the last: no forward pass follows in which DDP would find out"
    assert "this one left out what the first one used: branch.bias, branch.weight" in run.output


def test_one_process_has_nothing_to_round(lockstep):
    alone = lockstep("fit", *OPTIONS, name="alone")
    told = lockstep("fit", *OPTIONS, *BF16, "--gradients.static_graph", "true", name="told")
    assert torch.equal(gradients(told), gradients(alone))
    assert "one process has nobody to exchange them with" in (told.folder / "train.log").read_text()


def test_fp16_without_a_loss_scale_is_refused(team):
    run = team("fit", *OPTIONS, "--gradients.compression", "fp16", name="a", processes=2)
    assert run.end() != [0, 0] and "takes the loss scale of trainer.precision 16-mixed" in run.output
