"""Checks a step of LockstepModule without a training around it."""

import weakref
from inspect import getfullargspec
from types import SimpleNamespace

import pytest
import torch

from engine.module import LockstepModule
from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_linear import TinyData


class Bare(LockstepModule):
    """A module without a network, whose hooks are called one after another."""

    def training_loss(self, batch):
        raise NotImplementedError


def dropped(monkeypatch, seed, step, batch, process, accumulation=2):
    """Return random numbers drawn in a micro-batch, as dropout draws them."""
    monkeypatch.setenv("PL_GLOBAL_SEED", str(seed))
    module = Bare()
    module.trainer = fake_trainer(ranks=8, global_step=step, global_rank=process, accumulate_grad_batches=accumulation)
    module.on_train_batch_start(None, batch)
    return tuple(torch.rand(4).tolist())


def test_dropout_differs_by_seed_step_micro_batch_and_process(monkeypatch):
    """Processes that drop the same units of different samples train on less noise than one process does."""
    positions = [(0, 5, 10, 0), (1, 5, 10, 0), (0, 6, 10, 0), (0, 5, 11, 0), (0, 5, 10, 1)]
    assert len({dropped(monkeypatch, *position) for position in positions}) == len(positions)


def test_dropout_depends_on_nothing_else(monkeypatch):
    """A resumed run counts its batches from another start, and draws the same numbers."""
    assert dropped(monkeypatch, 0, 5, 10, 1) == dropped(monkeypatch, 0, 5, 12, 1)


class State(dict):
    """Optimizer state, of which a test can ask whether it is still in memory."""


@pytest.mark.parametrize("restores_after_setup", [False, True])
def test_optimizer_states_of_a_checkpoint_are_kept_only_for_a_check_that_follows(restores_after_setup):
    """With FSDP the check has run before, so the states would stay in the memory of each rank for the whole run."""
    strategy = SimpleNamespace(checkpoint_io=None, restore_checkpoint_after_setup=restores_after_setup)
    module = Bare()
    module.trainer = fake_trainer(strategy=strategy, datamodule=TinyData(batch_size=4), max_epochs=-1)
    counters = dict.fromkeys(("ready", "started", "processed", "completed"), 0)
    progress = {"total": dict(counters), "current": dict(counters)}
    state = State(state={}, param_groups=[])
    checkpoint = {
        "loops": {"fit_loop": {"epoch_loop.batch_progress": progress, "epoch_progress": progress}},
        "optimizer_states": [state],
    }
    checkpoint |= {"lr_schedulers": [], "global_step": 0, "epoch": 0}
    module.on_load_checkpoint(checkpoint)
    in_memory = weakref.ref(state)
    del checkpoint, state
    assert (in_memory() is None) == restores_after_setup


def test_lightning_is_given_the_signature_that_it_asks_for_in_every_step():
    assert "__signature__" in vars(LockstepModule.training_step)
    assert getfullargspec(Bare().training_step).args == ["self", "batch", "batch_idx"]


@pytest.mark.parametrize("norm", [1e-3, 0.999, 1.0, 1.0000001, 7.0, float("inf"), float("nan")])
def test_gradients_are_clipped_to_the_bit_as_torch_clips_them(norm):
    """On a CPU a norm below the limit saves the multiplication by 1."""
    weight, module = torch.nn.Parameter(torch.zeros(3)), Bare()
    weight.grad = torch.tensor([0.1, -7.0, 1e-8])
    module._gradient_norm = torch.tensor(norm)
    expected = torch.nn.Parameter(torch.zeros(3))
    expected.grad = weight.grad.clone()
    torch.nn.utils.clip_grads_with_norm_([expected], 1.0, torch.tensor(norm))
    module.configure_gradient_clipping(torch.optim.SGD([weight], lr=0.1), 1.0, "norm")
    torch.testing.assert_close(weight.grad, expected.grad, rtol=0, atol=0, equal_nan=True)
