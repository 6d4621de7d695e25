"""Counts named outcomes over all ranks, and returns their rates."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


def widest_float(device: torch.device) -> torch.dtype:
    """Return the widest floating-point format of a device: float64, or float32 on Apple's GPUs."""
    return torch.float32 if device.type == "mps" else torch.float64


class OutcomeRate(Metric):
    """Rate of each outcome: points reached / points possible.

    Args:
        names: all outcomes. Ranks are summed name by name, so every rank must use the same names.
        dtype: format of the sums. In float64 a sum of whole numbers does not depend on the order of its terms.
    """

    # The sums do not depend on what was summed before, so torchmetrics need not compute each batch twice.
    full_state_update = False
    reached: Tensor
    possible: Tensor

    def __init__(self, names: Sequence[str], dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.names = {name: index for index, name in enumerate(names)}
        self.add_state("reached", torch.zeros(len(names), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("possible", torch.zeros(len(names), dtype=dtype), dist_reduce_fx="sum")

    def update(self, outcomes: Mapping[str, tuple[float, float]]) -> None:
        """Add {name: (points reached, points possible)}.

        Raises:
            KeyError: an unknown name.
        """
        for name, (reached, possible) in outcomes.items():
            self.reached[self.names[name]] += reached
            self.possible[self.names[name]] += possible

    def compute(self) -> dict[str, float]:
        """Return {name: rate}, without the names that had no points to reach."""
        sums = zip(self.names, self.reached.tolist(), self.possible.tolist(), strict=True)
        return {name: reached / possible for name, reached, possible in sums if possible}
