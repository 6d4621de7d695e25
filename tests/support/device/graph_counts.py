"""Compiled graphs that run as torch has traced them, because C++ takes long; and how many there are."""

from functools import partial

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class CountGraphs(Callback):
    """Prints `compiled graphs: N` at the end of a training.

    Args:
        traced: in this process, run graphs as they were traced, without a compiler.
    """

    def __init__(self, traced: bool) -> None:
        if traced:
            torch.compile = partial(torch.compile, backend="aot_eager")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        from torch._dynamo.utils import counters

        print(f"compiled graphs: {counters['stats']['unique_graphs']}")


def count_graphs(device: str) -> list[str]:
    """Return the options of a training in a process of its own that counts graphs, on a CPU traced ones."""
    kind = f"{__name__}.{CountGraphs.__name__}"
    return [f"--trainer.callbacks+={kind}", f"--trainer.callbacks.traced={str(device == 'cpu').lower()}"]
