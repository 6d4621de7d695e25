"""Runs forward and backward passes before training that leave no trace in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins.precision import DoublePrecision, HalfPrecision
from lightning.pytorch.utilities.seed import isolate_rng
from torch import nn
from torch.utils.data import default_convert
from torchmetrics import Metric

from engine.module import LockstepModule


@contextmanager
def trial_pass(trainer: Trainer, pl_module: LockstepModule, batch: object) -> Iterator[Callable[[], None]]:
    """Yield a function that runs one forward and backward pass of a micro-batch in the run's precision.

    Passes accumulate gradients. On exit, gradients, buffers, metrics and random number generators are restored.

    Args:
        trainer: trainer of the run. Its strategy keeps the whole weights on each rank.
        pl_module: module whose `configure_model` has run.
        batch: micro-batch as the data set returns it.
    """
    device, precision = trainer.strategy.root_device, trainer.precision_plugin
    # Lightning converts and moves the module after the setup hooks, in which trial passes run.
    if isinstance(precision, (HalfPrecision, DoublePrecision)):
        precision.convert_module(pl_module)
    pl_module.to(device)

    def run_pass() -> None:
        with precision.forward_context():
            total = pl_module.training_loss(moved).total
        # `total` is a sum over samples. A loss near 1 keeps float16 gradients finite.
        (total / max(total.detach().abs().item(), 1.0)).backward()

    with isolate_rng(), _restore_state(pl_module), torch.enable_grad():
        moved = precision.convert_input(trainer.strategy.batch_to_device(default_convert(batch), device))
        yield run_pass


def _discard_log(*_: object, **__: object) -> None:
    """Replace a module's `log` and `log_dict`, which fail outside of training."""


@contextmanager
def _restore_state(pl_module: LockstepModule) -> Iterator[None]:
    """Restore gradients, buffers and metrics on exit. Inside, logging is off and no layer calls a collective."""
    buffers = {name: buffer.clone() for name, buffer in pl_module.named_buffers()}
    norms = [module for module in pl_module.modules() if isinstance(module, nn.SyncBatchNorm)]
    for norm in norms:
        # A rank may run out of memory before the layer, and the others would wait in its all-gather.
        vars(norm)["forward"] = MethodType(nn.BatchNorm1d.forward, norm)
    # Attributes of the object hide the methods of its class until they are deleted.
    vars(pl_module).update(log=_discard_log, log_dict=_discard_log)
    try:
        yield
    finally:
        del vars(pl_module)["log"], vars(pl_module)["log_dict"]
        for norm in norms:
            del vars(norm)["forward"]
        # The gradients become None, as before the first step.
        pl_module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in pl_module.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        # Metrics have counted the samples of the trial.
        for module in pl_module.modules():
            if isinstance(module, Metric):
                module.reset()
