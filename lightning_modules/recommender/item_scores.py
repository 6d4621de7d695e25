"""Scores all items in blocks, so that memory does not grow with their number.

Ranks and best items are the same as from the whole row of scores: a score is computed by the same product of matrices
wherever it is compared, and ties have a rule.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_BYTES = 1 << 28
"""Largest size of a block of scores. A block has at least one item; 256 MB are 262,144 items of 256 users."""


class ScoreBlock(NamedTuple):
    """Scores of consecutive items."""

    first: int  # item of the first column
    scores: Tensor  # [B, n] float32 or float64; column j is item `first` + j


class DotProductScores:
    """Scores of all items for B users: products of states and item vectors, computed when they are needed.

    Args:
        states: [B, C].
        weight: [V, C] item vectors; row i - 1 belongs to item i.
        block_bytes: largest size of a block; None is BLOCK_BYTES. It depends on nothing that differs between ranks.
    """

    def __init__(self, states: Tensor, weight: Tensor, block_bytes: int | None = None) -> None:
        # Scores are float32 also under autocast: in bf16 the scores of many items tie.
        self.states, self.weight = states.float(), weight
        self.num_items = len(weight)
        self._size = _items_per_block(len(states), 4, self.num_items, block_bytes)
        self._single_block: ScoreBlock | None = None  # the scores of all items, if they fit a single block

    def __len__(self) -> int:
        return len(self.states)

    def select_user(self, row: int) -> "DotProductScores":
        """Return the scores of a single user."""
        user_scores = DotProductScores(self.states[row : row + 1], self.weight)
        user_scores._single_block = self._single_block and ScoreBlock(1, self._single_block.scores[row : row + 1])
        return user_scores

    def blocks(self) -> Iterator[ScoreBlock]:
        """Yield the blocks, in the order of items. Do not change their scores."""
        for number in range(-(-self.num_items // self._size)):
            yield self._block(number)

    def _block(self, number: int) -> ScoreBlock:
        if self._single_block is not None:
            return self._single_block
        start = number * self._size
        with torch.autocast(self.states.device.type, enabled=False):
            vectors = self.weight[start : start + self._size].float()
            block = ScoreBlock(start + 1, self.states @ vectors.T)
        # A small catalog is scored once, although ranks, metrics and previews each read the scores.
        if self._size >= self.num_items:
            self._single_block = block
        return block

    def gather_items(self, items: Tensor) -> Tensor:
        """Return the scores of items [B, n], from the same products as in `blocks`; 0 where an item is 0."""
        result = self.states.new_zeros(items.shape)
        numbers = (items - 1).div(self._size, rounding_mode="floor")
        # Only blocks with one of the items are computed again.
        for number in torch.unique(numbers[items > 0]).tolist():
            first, scores = self._block(number)
            inside = (items > 0) & (numbers == number)
            columns = (items - first).clamp(0, scores.shape[1] - 1)
            result = torch.where(inside, scores.gather(1, columns), result)
        return result


class PrecomputedScores:
    """Scores that are computed already, with the interface of DotProductScores.

    Args:
        scores: [B, V + 1]; column j is item j, column 0 is ignored. Not modified.
        block_bytes: see DotProductScores. A comparison takes as much memory as a block.
    """

    def __init__(self, scores: Tensor, block_bytes: int | None = None) -> None:
        self.scores, self.num_items = scores, scores.shape[1] - 1
        self._size = _items_per_block(len(scores), scores.element_size(), self.num_items, block_bytes)

    def __len__(self) -> int:
        return len(self.scores)

    def select_user(self, row: int) -> "PrecomputedScores":
        """Return the scores of a single user."""
        return PrecomputedScores(self.scores[row : row + 1])

    def blocks(self) -> Iterator[ScoreBlock]:
        """Yield the blocks, in the order of items. Do not change their scores."""
        for first in range(1, self.num_items + 1, self._size):
            yield ScoreBlock(first, self.scores[:, first : min(first + self._size, self.num_items + 1)])

    def gather_items(self, items: Tensor) -> Tensor:
        """Return the scores of items [B, n]; scores of item 0 have no meaning."""
        return self.scores.gather(1, items)


class ShardedScores(ABC):
    """Scores of items that are sharded over the ranks. Every method is a collective.

    Attributes:
        num_items: number of items on all ranks.
    """

    num_items: int

    @abstractmethod
    def select_user(self, row: int) -> "ShardedScores":
        """Return the scores of one of this rank's users."""

    @abstractmethod
    def gather_items(self, items: Tensor) -> Tensor:
        """Return the scores of items [B, n]; 0 where an item is 0."""

    @abstractmethod
    def count_ahead(self, target: Tensor, seen: Tensor | None) -> Tensor:
        """Return the number [B] of items that do not score below the target [B], as the function `count_ahead` does."""

    @abstractmethod
    def best_items(self, number: int, seen: Tensor | None, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the best items of each row and their scores, [B, number] each, as the function `best_items` does."""


Scores = DotProductScores | PrecomputedScores | ShardedScores | Tensor
"""Scores of all items for B users; a tensor is [B, V + 1], with column 0 ignored."""


def as_blocks(scores: Scores) -> DotProductScores | PrecomputedScores | ShardedScores:
    """Return scores that can be read in blocks, or whose ranks read them in blocks."""
    return PrecomputedScores(scores) if isinstance(scores, Tensor) else scores


def block_positions(block: ScoreBlock, items: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of a block's scores that belong to items [B, n]; 0 is not an item."""
    columns = items - block.first
    inside = (items > 0) & (columns >= 0) & (columns < block.scores.shape[1])
    # Both enumerate `inside` row by row, so they belong together.
    return inside.nonzero()[:, 0], columns[inside]


def count_ahead(
    scores: DotProductScores | PrecomputedScores, target_scores: Tensor, target: Tensor, seen: Tensor | None = None
) -> Tensor:
    """Return the number of items that do not score below the row's target, [B] int64.

    The items are counted block by block. Ties and NaN are ahead, and so is the target itself if it is among the items.

    Args:
        scores: scores of all items.
        target_scores: [B, 1] scores of the targets.
        target: [B] int64, 0 for none among the items.
        seen: [B, S] int64 items that do not count, padded with 0, or None. The target always counts.
    """
    count = torch.zeros_like(target)
    for block in scores.blocks():
        # [B, n]; `not <`, so that NaN is ahead.
        ahead = ~(block.scores < target_scores)
        if seen is not None:
            ahead[block_positions(block, seen)] = False
        ahead[block_positions(block, target[:, None])] = True
        count += ahead.sum(1)
    return count


def best_items(
    scores: Scores, number: int, seen: Tensor | None = None, excluded: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the best items of each row, the best first; of equal scores the item with the smaller number comes first.

    Args:
        scores: scores of all items, without NaN. Not modified.
        number: number of items.
        seen: [B, S] items to exclude from the row, padded with 0; None: exclude none.
        excluded: [V + 1] true for items to exclude from all rows; None: exclude none.

    Returns:
        items and scores, [B, min(number, V)] each. Excluded items have -inf, and any number.
    """
    scores = as_blocks(scores)
    number = min(number, scores.num_items)
    if isinstance(scores, ShardedScores):
        return scores.best_items(number, seen, excluded)
    items = values = None
    for block in scores.blocks():
        block_scores = block.scores
        if seen is not None or excluded is not None:
            # A copy, as the scores of a single block are kept for the next reader.
            block_scores = block_scores.clone()
            if seen is not None:
                block_scores[block_positions(block, seen)] = -torch.inf
            if excluded is not None:
                mask = excluded[block.first : block.first + block_scores.shape[1]].to(block_scores.device)
                block_scores.masked_fill_(mask, -torch.inf)
        columns = _best_columns(block_scores, min(number, block_scores.shape[1]))
        best = columns + block.first, block_scores.gather(1, columns)
        if items is None or values is None:
            items, values = best
            continue
        # The earlier blocks come first and have the smaller numbers, so a stable order keeps the rule of ties.
        items, values = torch.cat((items, best[0]), 1), torch.cat((values, best[1]), 1)
        order = values.argsort(dim=1, descending=True, stable=True)[:, :number]
        items, values = items.gather(1, order), values.gather(1, order)
    assert items is not None and values is not None, "there is at least one item"
    return items, values


def _best_columns(scores: Tensor, number: int) -> Tensor:
    """Return the columns of the best scores, [B, number], the best first; ties by column."""
    values, columns = scores.topk(number)
    # topk takes any of the columns that tie at the end.
    last = values[:, -1:]
    tied = ((scores == last).sum(1) > (values == last).sum(1)) & (last[:, 0] > -torch.inf)
    # Ties at the cut are rare in a trained model, so these rows alone are sorted as a whole.
    for row in tied.nonzero()[:, 0].tolist():
        columns[row] = scores[row].argsort(descending=True, stable=True)[:number]
    # Ascending columns first: the stable sort by score then leaves ties in the order of items.
    columns = columns.sort(dim=1).values
    return columns.gather(1, scores.gather(1, columns).argsort(dim=1, descending=True, stable=True))


def _items_per_block(rows: int, size: int, num_items: int, block_bytes: int | None) -> int:
    """Return the number of items of a block."""
    return max(1, min(num_items, (BLOCK_BYTES if block_bytes is None else block_bytes) // (size * max(rows, 1))))
