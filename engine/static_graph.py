"""DDP's static graph: learned in the first backward pass, and held against those after it."""

from collections import Counter
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


class StaticGraph:
    """Watches over one DDP with `static_graph` during training; `close` when that is over.

    DDP itself fails at once over a parameter that the first step did not use. One that is left out it sees in the next
    forward pass, when the optimizer has made a step of gradients that were never averaged.
    """

    def __init__(self, ddp: DistributedDataParallel) -> None:
        _exchange_in_first_pass(ddp)
        self._promised: Counter[str] | None = None
        self._uses: Counter[str] = Counter()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: self._uses.update((name,)))
            for name, parameter in ddp.module.named_parameters()
            if parameter.requires_grad
        ]

    def after_backward(self, exchanged: bool) -> None:
        """To be called after each backward pass; of an accumulated step only the last one is exchanged.

        Raises:
            RuntimeError: the pass was exchanged, and parameters had fewer gradients than in the first one.
        """
        uses, self._uses = self._uses, Counter()
        if self._promised is None:
            self._promised = uses
        lacking = self._promised - uses
        if exchanged and lacking:
            raise RuntimeError(
                "static_graph promises that every step uses the same parameters, and this one left out what the first "
                f"one used: {', '.join(sorted(lacking))}. No step is made of it: its gradients are not those of all "
                "processes. Without static_graph: --trainer.strategy ddp_find_unused_parameters_true"
            )

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _exchange_in_first_pass(ddp: DistributedDataParallel) -> None:
    """Of an accumulated step DDP exchanges the last backward pass, but it learns a static graph in the very first, and
    fails an assertion when that is not exchanged. So it is; a mean to which means are added is the same mean."""

    def exchange(*_: Any) -> None:
        if torch.is_grad_enabled():  # not of the validation that comes first
            ddp.require_backward_grad_sync = True
            hook.remove()

    hook = ddp.register_forward_pre_hook(exchange)
