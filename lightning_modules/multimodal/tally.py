"""Counts of what was right, added up over processes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric


class Tally(Metric):
    """Shares of named outcomes: points reached of points that could be.

    Args:
        names: all names there can be; processes add up name by name, so each must know all.
        precise: what is added up in; in double precision sums of whole numbers are the same in any order.
    """

    full_state_update = False
    reached: Tensor
    possible: Tensor

    def __init__(self, names: Sequence[str], precise: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.names = {name: place for place, name in enumerate(names)}
        self.add_state("reached", torch.zeros(len(names), dtype=precise), dist_reduce_fx="sum")
        self.add_state("possible", torch.zeros(len(names), dtype=precise), dist_reduce_fx="sum")

    def update(self, outcomes: Mapping[str, tuple[float, float]]) -> None:
        """Counts {name: (points reached, points possible)}.

        Raises:
            KeyError: a name that was not announced.
        """
        for name, (reached, possible) in outcomes.items():
            self.reached[self.names[name]] += reached
            self.possible[self.names[name]] += possible

    def compute(self) -> dict[str, float]:
        """{name: share}, without names of which nothing was possible."""
        sums = zip(self.names, self.reached.tolist(), self.possible.tolist(), strict=True)
        return {name: reached / possible for name, reached, possible in sums if possible}
