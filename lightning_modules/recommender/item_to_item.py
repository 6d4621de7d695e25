"""Fits baselines with a weight for each pair of items, in closed form: ItemKNN and EASE.

Both see a user's training part as the set of its items, and score a history by the sum of the weights from its items.
The weights are rounded to multiples of a power of two, so that the sums are exact: neither the number of ranks nor the
composition of a batch changes a metric.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datamodules.recommender.batch import History, TrainingEvents
from engine.number_check import check_number, check_numbers
from lightning_modules.recommender.baselines import remaining_training_events

_BLOCK = 1 << 22  # pairs of items per block, which bounds the memory
_SIMILARITY = 1 << 30  # a similarity of 1, as an integer
_WEIGHT = 1 << 20  # EASE's weights are multiples of its inverse: sums below 16 are exact in float32


@dataclass(frozen=True)
class ItemBaselines:
    """Settings of the baselines `item-knn` and `ease`.

    Args:
        neighbours: number of nearest items of an item in `item-knn`.
        l2: regularization of `ease`, lambda in the paper.
        last_events: number of last events of a history that are scored; null is all that the model sees, as in the
            papers, which do not know the order of events.
        max_items: largest number of items. Of more items both are skipped: each process keeps 4 bytes for each pair of
            items, needs 20 bytes while it computes `ease`, and its time grows with the cube of their number.
    """

    neighbours: int = 20
    l2: float = 500.0
    last_events: int | None = 10
    max_items: int = 10_000

    def __post_init__(self) -> None:
        key = "model.init_args.item_baselines."
        sizes = {"neighbours": self.neighbours, "last_events": self.last_events, "max_items": self.max_items}
        check_numbers(key, sizes, at_least=1)
        check_number(key + "l2", self.l2, above=0)


class ItemKNN(nn.Module):
    """Scores an item by its cosine similarities to the items of the history that have it among their nearest items.

    Deshpande and Karypis, "Item-Based Top-N Recommendation Algorithms", ACM TOIS 2004, section 4. The similarity of two
    items is the number of users with both over the square root of the product of their numbers of users. Of equally
    similar items the first is the nearer.

    Args:
        events: the training part.
        num_items: number of items V.
        neighbors: number of nearest items that count, at most V - 1.
        last_events: number of last events that are scored; None for all.
    """

    nearest: Tensor  # [V + 1, neighbors] int64, the nearest items of each item
    similarities: Tensor  # [V + 1, neighbors] int64, in units of 2^-30

    def __init__(self, events: TrainingEvents, num_items: int, neighbors: int, last_events: int | None = None) -> None:
        super().__init__()
        self.last_events = last_events
        users = _UsersOfItems(events, num_items)
        neighbors = min(neighbors, num_items - 1)
        nearest = torch.zeros(num_items + 1, neighbors, dtype=torch.int64)
        similarities = torch.zeros_like(nearest)
        for first, common in users.in_common():
            rows = slice(first, first + len(common))
            # [block, V]; an item without users has a norm of 0 and similarity 0 to all.
            either = (users.counts[rows, None] * users.counts).clamp(min=1).sqrt()
            # Rounded to integers: their sums are exact in any order.
            similarity = (common / either * _SIMILARITY).round().long()
            similarity[torch.arange(len(common)), torch.arange(first, first + len(common))] = 0
            # One integer orders by similarity, then by item.
            columns = (similarity * 2**32 - torch.arange(num_items)).topk(neighbors).indices
            nearest[first + 1 : first + 1 + len(common)] = columns + 1
            similarities[first + 1 : first + 1 + len(common)] = similarity.gather(1, columns)
        self.register_buffer("nearest", nearest)
        self.register_buffer("similarities", similarities)

    def scores(self, history: History) -> Tensor:
        """Return [B, V + 1] int64, in units of 2^-30: column j is item j; column 0 has no meaning."""
        items = _distinct_items(history, self.last_events)
        scores = self.nearest.new_zeros(len(items), len(self.nearest))
        # [B, L * neighbors] additions; integers, as floating-point additions of scatter have no fixed order on CUDA.
        return scores.scatter_add_(1, self.nearest[items].flatten(1), self.similarities[items].flatten(1))


class EASE(nn.Module):
    """Scores an item by linear regression on the items of the history, in which no item predicts itself.

    Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. With X the users x items matrix of zeros and
    ones and P = (X^T X + l2 I)^-1, the weight from item i to item j is -P[i, j] / P[j, j] (equation 8), which minimizes
    |X - X B|^2 + l2 |B|^2 under a zero diagonal of B.

    Args:
        events: the training part.
        num_items: number of items V.
        l2: regularization, above 0.
        last_events: number of last events that are scored; None for all.
    """

    weights: Tensor  # [V + 1, V + 1] float32: row i, column j is the weight from item i to item j

    def __init__(self, events: TrainingEvents, num_items: int, l2: float, last_events: int | None = None) -> None:
        super().__init__()
        self.last_events = last_events
        gram = torch.empty(num_items, num_items, dtype=torch.float64)
        for first, common in _UsersOfItems(events, num_items).in_common():
            gram[first : first + len(common)] = common
        gram.diagonal().add_(l2)
        # The matrix is float64. Reusing the name frees the old matrix: at 10,000 items each has 800 MB.
        gram = torch.linalg.cholesky(gram)
        inverse = torch.cholesky_inverse(gram)
        del gram
        inverse /= -inverse.diagonal().clone()
        inverse.fill_diagonal_(0)
        weights = torch.zeros(num_items + 1, num_items + 1)
        # Row and column 0 stay 0, so padding of a history adds nothing.
        weights[1:, 1:] = inverse.mul_(_WEIGHT).round_().div_(_WEIGHT)
        self.register_buffer("weights", weights)

    def scores(self, history: History) -> Tensor:
        """Return [B, V + 1] float32: column j is item j; column 0 has no meaning."""
        items = _distinct_items(history, self.last_events)
        return functional.embedding_bag(items, self.weights, mode="sum", padding_idx=0)


class _UsersOfItems:
    """The users of each item in the training part, each once.

    Args:
        events: the training part.
        num_items: number of items V.
    """

    counts: Tensor
    """[V] float64, number of users."""

    def __init__(self, events: TrainingEvents, num_items: int) -> None:
        offsets, items, train_end = events
        num_users = len(train_end)
        keys = [np.zeros(0, np.int64)]
        for low, remaining in remaining_training_events(offsets, train_end):
            event = low + np.flatnonzero(remaining > 0)
            users = np.searchsorted(offsets, event, side="right") - 1
            # One number for each (item, user), so that a sort makes pairs distinct without a hash table.
            keys.append((items[event].astype(np.int64) - 1) * num_users + users)
        ordered = np.sort(np.concatenate(keys))
        pairs = np.divmod(ordered[np.diff(ordered, prepend=-1) > 0], max(num_users, 1))
        item_of, user_of = map(torch.from_numpy, pairs)
        self.counts = torch.bincount(item_of, minlength=num_items).double()
        self._items, self._users, self._size = item_of, user_of, (num_items, num_users)

    def in_common(self) -> Iterator[tuple[int, Tensor]]:
        """Yield for each block of items its first item (from 0) and the numbers of users in common, [block, V] float64.

        The diagonal holds the number of users of each item.
        """
        (num_items, num_users), items, users = self._size, self._items, self._users
        items_of_users = _sparse(users, items, (num_users, num_items)).coalesce()
        block = max(1, _BLOCK // num_items)
        for first in range(0, num_items, block):
            rows = min(block, num_items - first)
            # The pairs are sorted by item, so a block of items is a slice.
            low, high = torch.searchsorted(items, torch.tensor([first, first + rows])).tolist()
            part = _sparse(items[low:high] - first, users[low:high], (rows, num_users))
            with warnings.catch_warnings():
                # MKL multiplies them as CSR.
                warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
                common = torch.sparse.mm(part, items_of_users)
            yield first, common.to_dense()


def _sparse(rows: Tensor, columns: Tensor, size: tuple[int, int]) -> Tensor:
    """Return a sparse float64 matrix of ones."""
    ones = torch.ones(len(rows), dtype=torch.float64)
    return torch.sparse_coo_tensor(torch.stack((rows, columns)), ones, size, check_invariants=True)


def _distinct_items(history: History, last_events: int | None) -> Tensor:
    """Return the items of the last events of each row in order, with 0 for those that repeat: [B, L] or less."""
    items = history.items
    if last_events is not None:
        ages = torch.arange(min(last_events, items.shape[1]), device=items.device)
        positions = history.lengths[:, None] - 1 - ages
        items = items.gather(1, positions.clamp(min=0)) * (positions >= 0)
    # A history is a set here: an item that occurs twice counts once.
    ordered = items.sort(dim=1).values
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = 0
    return ordered
