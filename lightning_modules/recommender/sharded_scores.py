"""Scores the items of a table whose rows are sharded over the ranks.

The states of all users go to all ranks, and each rank scores its own items for all of them. So the item vectors, which
are many, stay where they are, and only states, counts and best items, which are few, are exchanged.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from engine.distributed.collectives import all_gather_matrices, all_gather_tensor
from engine.distributed.row_shards import own_rows
from lightning_modules.recommender.item_scores import (
    BLOCK_BYTES,
    DotProductScores,
    ShardedScores,
    best_items,
    count_ahead,
)


class ShardedDotProductScores(ShardedScores):
    """Scores of the items of a sharded table for the users of each rank.

    Every rank must make the same calls. The users of a rank are scored apart from those of others, by the products of
    matrices of the shape that they have in one process, but for the number of items.

    Args:
        states: [B, C] of this rank's users; B is at least 1 and may differ between ranks.
        table: [V + 1, C], sharded; row i belongs to item i, row 0 is padding.
    """

    def __init__(self, states: Tensor, table: Tensor) -> None:
        self.states, self.table, self.num_items = states.float(), table, table.shape[0] - 1
        # The first rank also holds row 0, the padding, which is not an item.
        first, weight = own_rows(table)
        padding = int(first == 0)
        self._before, weight = first + padding - 1, weight[padding:]
        self._own_items = len(weight)
        # [b, C] of each rank's users.
        states_by_rank = all_gather_matrices(self.states)
        block_bytes = BLOCK_BYTES // len(states_by_rank)  # of all together at most BLOCK_BYTES
        self._parts = [DotProductScores(part, weight, block_bytes) for part in states_by_rank]
        self._rank = torch.distributed.get_rank()

    @override
    def select_user(self, row: int) -> "ShardedDotProductScores":
        return ShardedDotProductScores(self.states[row : row + 1], self.table)

    @override
    def gather_items(self, items: Tensor) -> Tensor:
        # All ranks score the items of all, and each keeps its own users' rows.
        return self._scores_for_each_rank(self._own_numbers(items))[self._rank]

    @override
    def count_ahead(self, target: Tensor, seen: Tensor | None) -> Tensor:
        targets = self._own_numbers(target[:, None])
        seens = [None] * len(self._parts) if seen is None else self._own_numbers(seen)
        counts = [
            count_ahead(part, target_scores, goal[:, 0], own)[:, None]
            for part, target_scores, goal, own in zip(
                self._parts, self._scores_for_each_rank(targets), targets, seens, strict=True
            )
        ]
        return _sum_over_ranks(counts)[self._rank][:, 0]

    @override
    def best_items(self, number: int, seen: Tensor | None, excluded: Tensor | None) -> tuple[Tensor, Tensor]:
        seens = [None] * len(self._parts) if seen is None else self._own_numbers(seen)
        # Shifted by one, as entry 0 of a mask stands for padding.
        mask = None if excluded is None else excluded[self._before : self._before + self._own_items + 1]
        local_best = [
            self._best_of_part(part, number, local_best, mask)
            for part, local_best in zip(self._parts, seens, strict=True)
        ]
        rows = [len(part) for part in self._parts]
        items, values = (
            all_gather_tensor(torch.cat(column)).split(rows, 1)[self._rank].transpose(0, 1).flatten(1)
            for column in zip(*local_best, strict=True)
        )
        # The earlier ranks come first and have the smaller items, so a stable order keeps the rule of ties.
        order = values.argsort(dim=1, descending=True, stable=True)[:, :number]
        return items.gather(1, order), values.gather(1, order)

    def _best_of_part(
        self, part: DotProductScores, number: int, seen: Tensor | None, excluded: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the best of this rank's items, [B, number], with scores of -inf where it has fewer."""
        items = torch.empty(len(part), 0, dtype=torch.int64, device=part.states.device)
        values = items.to(part.states.dtype)
        if self._own_items:
            items, values = best_items(part, number, seen, excluded)
        # All ranks gather matrices of the same width, also a rank with fewer items than `number`.
        missing = (0, number - items.shape[1])
        return F.pad(items + self._before, missing, value=1), F.pad(values, missing, value=-torch.inf)

    def _own_numbers(self, items: Tensor) -> list[Tensor]:
        """Return the items of each rank's users, [B, n], as numbers among this rank's items; 0 is none of them."""
        numbers = [part - self._before for part in all_gather_matrices(items)]
        return [part * ((part > 0) & (part <= self._own_items)) for part in numbers]

    def _scores_for_each_rank(self, numbers: list[Tensor]) -> list[Tensor]:
        """Return the scores of items for each rank's users, [B, n]. The rank that has an item gives its score."""
        return _sum_over_ranks([part.gather_items(own) for part, own in zip(self._parts, numbers, strict=True)])


def _sum_over_ranks(parts: list[Tensor]) -> list[Tensor]:
    """Return the sum over the ranks of matrices [b, n], of equal shapes on each rank."""
    total = torch.cat([part.flatten() for part in parts])
    torch.distributed.all_reduce(total)
    sums = total.split([part.numel() for part in parts])
    return [own.view_as(part) for own, part in zip(sums, parts, strict=True)]
