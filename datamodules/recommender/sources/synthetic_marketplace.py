"""Generates a marketplace with a known rule, so that a model can be compared with the best possible scores.

The rule. Every item `i` has two short lists: `along(i)`, the next items along the aisle, and `returning(i)`, the
items that shoppers come back for after `i`. A shopper's events form visits: within a visit, events are 1 to 4
personal units apart (a unit is 10 to 60 seconds), and a pause of 1 to 7 days separates two visits. The next item
depends on the last item and on the gap before it:

    in the middle of a visit (the last gap was short)      next ~ along(last)
    just back (the last gap was a pause)                   next ~ returning(last)

The items of a list have the weights 1, 1/2, 1/4, ... in order, and with probability `noise` the next item is any
item. A shopper never takes an item twice: a taken item has weight 0, and the other items share its probability in
proportion. (Seen items are removed from the ranking; with repeated purchases the metrics could be gamed and no optimum
would be known.)

Whether a gap is a pause is independent of the items (probability `pause_share`). A model without the times can
therefore do no better than to mix the two lists. The first event of a shopper counts as just back, and the second
follows after one unit, so the smallest gap of a training part is the shopper's unit, and a pause is longer than 256
units.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import History
from datamodules.recommender.events import EventArrays
from engine.determinism.stateless_rng import hash_integers, hash_permutation, hash_uniform
from engine.number_check import check_number

_ALONG, _RETURNING, _LENGTH, _UNIT, _START, _PAUSE, _STEPS, _REST, _ITEM = range(9)  # streams of the seed
_DAY = 86_400
_GROUP_SIZE = 8  # items of an aisle or an errand
_EPOCH = 1_577_836_800  # 2020-01-01


@dataclass(frozen=True)
class Marketplace:
    """Shoppers, items and the rule. Equal parameters give equal events on any machine.

    Args:
        num_users: number of shoppers.
        num_items: number of items V.
        min_length: minimum number of events of a shopper.
        max_length: maximum number of events of a shopper.
        seed: seed of the events.
        noise: probability that the next item is any item.
        pause_share: probability that a gap is a pause.
        companions: length of the two lists of an item.
    """

    num_users: int = 3_000
    num_items: int = 400
    min_length: int = 10
    max_length: int = 40
    seed: int = 0
    noise: float = 0.1
    pause_share: float = 0.5
    companions: int = 4

    def __post_init__(self) -> None:
        check_number("num_users", self.num_users, at_least=1)
        if not 3 <= self.min_length <= self.max_length:
            raise ValueError(
                f"min_length and max_length: found {self.min_length} and {self.max_length}, expected 3 <= min_length "
                "<= max_length (training, validation and test need an event each)"
            )
        if not 1 <= self.companions < self.num_items or self.max_length > self.num_items:
            raise ValueError(
                f"num_items: found {self.num_items}, expected at least max_length ({self.max_length}), as no shopper "
                f"takes an item twice, and more than companions ({self.companions}, which must be 1 or more)"
            )
        check_number("noise", self.noise, above=0, at_most=1)
        check_number("pause_share", self.pause_share, at_least=0, at_most=1)

    def events(self, chunk: int = 2_048) -> EventArrays:
        """Generate the events of all shoppers.

        Args:
            chunk: shoppers generated at once (affects memory, not the result).
        """
        users = np.arange(self.num_users)
        lengths = self.min_length + hash_integers(self.max_length - self.min_length + 1, self.seed, _LENGTH, users)
        # All shoppers are generated with max_length events; `is_event` cuts each to its own length.
        parts = [self._shoppers(users[start : start + chunk]) for start in range(0, self.num_users, chunk)]
        is_event = np.arange(self.max_length) < lengths[:, None]
        items, times = (np.concatenate(columns)[is_event] for columns in zip(*parts, strict=True))
        return EventArrays(np.concatenate([[0], np.cumsum(lengths)]), items.astype(np.int32), times, self.num_items)

    def probabilities(
        self, last: NDArray[np.int64], back: NDArray[np.bool_], taken: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the probability of each next item under the rule.

        Args:
            last: [B] the last item, 0 if there is none (all items are equally likely).
            back: [B] whether the gap before it was a pause.
            taken: [B, V + 1] the items that the shopper has taken.

        Returns:
            float64 [B, V + 1], rows sum to 1; column 0 is 0.
        """
        share = np.where(last > 0, 1 - self.noise, 0.0)[:, None]
        weights = np.broadcast_to((1 - share) / self.num_items, taken.shape).copy()
        order = 0.5 ** np.arange(self.companions)
        rows = np.arange(len(last))[:, None]
        # The items of a list are distinct, so += adds to each of them.
        weights[rows, self.lists[back.astype(np.int64), last]] += share * order / order.sum()
        weights[taken] = 0
        weights[:, 0] = 0
        return weights / weights.sum(1, keepdims=True)

    @cached_property
    def lists(self) -> NDArray[np.int64]:
        """int64 [2, V + 1, companions]: `lists[0, i]` is along(i), `lists[1, i]` is returning(i); row 0 is unused.

        Each list has the items that follow `i` on a circle of all items in random order.
        """
        lists = np.ones((2, self.num_items + 1, self.companions), np.int64)
        ahead = np.arange(self.num_items)[:, None] + np.arange(1, self.companions + 1)
        for kind, stream in enumerate((_ALONG, _RETURNING)):
            circle = 1 + hash_permutation(self.num_items, self.seed, stream)
            lists[kind, circle] = circle[ahead % self.num_items]
        return lists

    def item_table(self) -> str:
        """Return a table of the items as CSV: what is near to what on the two circles of `lists`.

        An `aisle` is of 8 neighbors on the circle of along(i), where `shelf` is the place of an item, from 0. An
        `errand` and its `step` are the same on the circle of returning(i).
        """
        positions = np.zeros((2, self.num_items), np.int64)
        for kind, stream in enumerate((_ALONG, _RETURNING)):
            positions[kind, hash_permutation(self.num_items, self.seed, stream)] = np.arange(self.num_items)
        (aisle, errand), (shelf, step) = np.divmod(positions, _GROUP_SIZE)
        rows = zip(range(1, self.num_items + 1), aisle, shelf, errand, step, strict=True)
        lines = (f"item-{item},aisle-{a},{b},errand-{c},{d}" for item, a, b, c, d in rows)
        return "\n".join(["item_id,aisle,shelf,errand,step", *lines, ""])

    def optimal_scores(self, history: History) -> Tensor:
        """Return the best possible scores: the probability of each item under the rule.

        The probability depends on the last item, the last gap and the taken items, so the whole history is needed
        (`max_length` of the batch is at least the marketplace's). Ties are broken by item number, because ranks
        count ties against the model; any order of equal items is optimal.

        Returns:
            float64 [B, V + 1]
        """
        last, taken = self._last_and_taken(history)
        lengths, times = history.lengths.cpu().numpy(), history.times.cpu().numpy()
        rows = np.arange(len(lengths))
        # Padding rows and first events have gap 0; `lengths < 2` counts them as just back.
        gap = times[rows, np.maximum(lengths - 1, 0)] - times[rows, np.maximum(lengths - 2, 0)]
        return self._as_scores(self.probabilities(last, (lengths < 2) | (gap >= _DAY), taken), history)

    def time_blind_scores(self, history: History) -> Tensor:
        """Return the best scores without times: the probability of each item given all items so far.

        Pauses are independent of the items, so this is the mixture of the two cases weighted by the probability of a
        pause (1 before the second event, 0 before the third, then `pause_share`).

        Returns:
            float64 [B, V + 1]
        """
        last, taken = self._last_and_taken(history)
        lengths = history.lengths.cpu().numpy()[:, None]
        pause = np.select([lengths < 2, lengths == 2], [1.0, 0.0], self.pause_share)
        back = np.ones(len(last), np.bool_)
        mixture = pause * self.probabilities(last, back, taken) + (1 - pause) * self.probabilities(last, ~back, taken)
        return self._as_scores(mixture, history)

    def _shoppers(self, users: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Generate items and times of some shoppers, [u, max_length] each."""
        positions = np.arange(self.max_length)
        back = hash_uniform(self.seed, _PAUSE, users[:, None], positions) < self.pause_share
        back[:, 0], back[:, 1] = True, False
        unit = 10 + hash_integers(51, self.seed, _UNIT, users)[:, None]
        steps = 1 + hash_integers(4, self.seed, _STEPS, users[:, None], positions)
        steps[:, 1] = 1
        away = _DAY + hash_integers(6 * _DAY, self.seed, _REST, users[:, None], positions)
        gaps = np.where(back, away, unit * steps)
        times = _EPOCH + hash_integers(365 * _DAY, self.seed, _START, users)[:, None] + np.cumsum(gaps, 1)

        items = np.zeros((len(users), self.max_length), np.int64)
        taken = np.zeros((len(users), self.num_items + 1), np.bool_)
        last = np.zeros(len(users), np.int64)
        for position in positions:
            # The next item depends on the gap before the last event; the gap after it is not known yet.
            probabilities = self.probabilities(last, back[:, max(position - 1, 0)], taken)
            last = _draw(probabilities, hash_uniform(self.seed, _ITEM, users, position))
            items[:, position] = last
            taken[np.arange(len(users)), last] = True
        return items, times

    def _last_and_taken(self, history: History) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        items, lengths = history.items.cpu().numpy(), history.lengths.cpu().numpy()
        rows = np.arange(len(items))
        taken = np.zeros((len(items), self.num_items + 1), np.bool_)
        taken[rows[:, None], items] = True
        return items[rows, np.maximum(lengths - 1, 0)], taken

    def _as_scores(self, probabilities: NDArray[np.float64], history: History) -> Tensor:
        tie_break = 1e-9 * np.arange(self.num_items + 1) / self.num_items
        scores, device = torch.from_numpy(probabilities - tie_break), history.items.device
        # MPS has no float64. In float32 some ties return, which lowers the optimum slightly.
        return scores.float().to(device) if device.type == "mps" else scores.to(device)


def _draw(probabilities: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the column at which the cumulative probability of a row passes its uniform number."""
    # Scaled by the row's own sum, which rounding may leave below 1, so that the column is always valid.
    passed = np.cumsum(probabilities, 1)
    return (passed <= uniform[:, None] * passed[:, -1:]).sum(1)
