"""Draws negatives by a mixture of distributions, and computes how often each item is expected among them.

The negatives of a position are of up to three kinds: uniform and by popularity, which are drawn for the position (or
its row) among the items that the row lacks, and targets of the global batch, which all positions of the batch share.
The expected number of times that item i is among the negatives of row b is

    E[b, i] = uniform / (number of items that b lacks) + popular * weight[i] / (weight of the items that b lacks)
              + batch_targets * (share of i among all targets).

Sampled softmax subtracts log E from the scores: "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
Recommendations" (Yi et al., RecSys 2019) for targets of the batch, "Mixed Negative Sampling for Learning Two-tower
Neural Networks in Recommendations" (Yang et al., WWW 2020) for their mixture with uniform negatives.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.recommender.batch import SampledItems
from datamodules.recommender.events import Integers
from datamodules.recommender.negatives.popularity_negatives import PopularItems
from datamodules.recommender.negatives.uniform_negatives import InteractedItems

_NEGATIVES = 3  # hash key of the uniform negatives; the samplers use other keys with the same seed
_POPULAR = 14  # hash key of the negatives by popularity

NegativeKind = Literal["uniform", "mixed"]
"""How negatives of a position are drawn."""


class NegativeOptions(NamedTuple):
    """Options of the negatives; see InteractionSequences."""

    number: int = 0
    shared: bool = False
    kind: NegativeKind = "uniform"
    popularity_share: float = 0.5
    popularity_power: float = 0.75
    batch_targets: int = 0
    log_q: bool = True

    @property
    def num_popular(self) -> int:
        """Negatives of a position that are drawn by popularity; the others are uniform."""
        return round(self.number * self.popularity_share) if self.kind == "mixed" else 0

    @property
    def is_uniform(self) -> bool:
        """Whether all negatives are uniform, which needs no correction."""
        return self.kind == "uniform" and not self.batch_targets

    @property
    def description(self) -> str:
        """The options that make negatives other than uniform, for messages; "" if all are uniform."""
        parts = ["data.init_args.negatives mixed"] if self.kind == "mixed" else []
        parts += [f"data.init_args.batch_negatives {self.batch_targets}"] if self.batch_targets else []
        return " with ".join(parts)


UNIFORM = NegativeOptions()
"""No negatives."""


def check_negative_options(options: NegativeOptions) -> None:
    """Check that negatives by popularity can be drawn.

    Raises:
        ValueError: there is no negative, or the share rounds to none.
    """
    if options.kind == "uniform":
        return
    key = "data.init_args."
    if not options.number:
        raise ValueError(
            f"{key}negatives mixed: found {key}num_negatives 0, expected the number of negatives of a position: "
            "set it to 256, for example"
        )
    if not options.num_popular:
        raise ValueError(
            f"{key}popularity_share {options.popularity_share:g} of {key}num_negatives {options.number} rounds to 0 "
            "negatives: raise one of them, or set negatives uniform"
        )


class NegativeMixture:
    """Draws the negatives of training rows, and computes the corrections of sampled softmax.

    Args:
        options: numbers of negatives of each kind, and whether to correct.
        counts: [num_items + 1] from `target_counts`.
        seed: seed of the run.
    """

    def __init__(self, options: NegativeOptions, counts: Integers, seed: int) -> None:
        self.options, self._seed = options, seed
        self._popular = PopularItems(counts, options.popularity_power) if options.num_popular else None
        # The share of an item among all targets is how often a target of the batch is that item.
        self._shares = counts / max(int(counts[1:].sum()), 1)

    def draw(
        self, interacted: InteractedItems, epoch: int, samples: Integers, positions: Integers
    ) -> NDArray[np.int64]:
        """Draw the negatives of positions, those by popularity first: int64 [B, L, K].

        Args:
            interacted: distinct items of each row.
            epoch: the epoch.
            samples: [B, 1, 1] sample of each row.
            positions: [B, L, 1], or [1, 1, 1] for negatives that a row shares.
        """
        num_popular, drawn = self.options.num_popular, []
        if self._popular is not None:
            # A draw is a hash of (seed, epoch, kind, sample, position, number), whatever the rank and the batch.
            where = (self._seed, epoch, _POPULAR, samples, positions, np.arange(num_popular))
            drawn.append(self._popular.draw_absent(interacted, *where))
        if num_popular < self.options.number:
            where = (self._seed, epoch, _NEGATIVES, samples, positions, np.arange(self.options.number - num_popular))
            drawn.append(interacted.draw_absent(*where))
        if not drawn:
            return np.zeros((len(interacted.numbers), 1, 0), np.int64)
        return np.concatenate(drawn, axis=2)

    def corrections(
        self, interacted: InteractedItems, targets: Integers, negatives: Integers, batch_targets: Integers
    ) -> SampledItems:
        """Return what sampled softmax subtracts from the scores.

        Args:
            interacted: distinct items of each row.
            targets: [B, L], 0 where padded.
            negatives: [B, L, K] or [B, 1, K], 0 where padded.
            batch_targets: [M] targets of the global batch; 0 for none.
        """
        batch_candidates = np.broadcast_to(batch_targets, (len(interacted.numbers), len(batch_targets)))
        logs = [
            np.where(items > 0, self._log_expected(interacted, items), 0).astype(np.float32)
            if self.options.log_q
            else np.zeros(items.shape, np.float32)
            for items in (targets, negatives, batch_candidates)
        ]
        # The score of an item that the row has becomes minus infinity, so that it is not a negative.
        logs[2] = np.where((batch_targets > 0) & ~interacted.contain(batch_targets), logs[2], np.float32(np.inf))
        return SampledItems(torch.from_numpy(batch_targets), *(torch.from_numpy(log) for log in logs))

    def _log_expected(self, interacted: InteractedItems, items: Integers) -> NDArray[np.float64]:
        """Return log E of items [B, ...], see the module's docstring."""
        shape, options = (-1, *[1] * (items.ndim - 1)), self.options
        expected = (options.number - options.num_popular) / interacted.free.reshape(shape)
        if self._popular is not None:
            weights, free = self._popular.weights[items], self._popular.free(interacted).reshape(shape)
            expected = expected + options.num_popular * weights / free
        if options.batch_targets:
            expected = expected + options.batch_targets * self._shares[items]
        # A target that training never counts, of a random window, has no negatives to be compared with.
        return np.log(np.maximum(np.broadcast_to(expected, items.shape), np.finfo(np.float32).tiny))
