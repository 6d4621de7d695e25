"""Collects the ranks of held-out items by user on every process, gathers them, and writes them to a file."""

import logging
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import RankingBatch
from datamodules.recommender.interface import RecommenderData
from engine.distributed.collectives import all_gather_rows
from engine.io.atomic_file import write_atomically
from lightning_modules.recommender.baselines import Popularity
from lightning_modules.recommender.item_ranks.item_groups import popularity_bounds
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, Recommended, UserRanks, encode, rank_file

log = logging.getLogger("lockstep")


class RankCollector:
    """Ranks of the users that this rank has evaluated.

    Args:
        num_items: number of items.
        remove_seen: whether the items of a user's history are excluded from the ranking.
        device: device of the ranks.
        num_recommended: number of recommended items of each user that are kept, too.
    """

    def __init__(self, num_items: int, remove_seen: bool, device: torch.device, num_recommended: int = 0) -> None:
        self._num_items, self._remove_seen = num_items, remove_seen
        # An empty first batch, so that a rank without users takes part in the gather with the right shape and dtype.
        self._batches = [torch.zeros((0, 3 + num_recommended), dtype=torch.int64, device=device)]

    def add(self, ranks: Tensor, batch: RankingBatch, recommended: Tensor | None = None) -> None:
        """Add a batch, its ranks, [B] int64, and its recommended items, [B, K] int64. Padding rows are dropped."""
        candidates = torch.full_like(ranks, self._num_items)
        if self._remove_seen:
            candidates -= distinct_items(batch.seen, batch.target)
        rows = torch.stack([batch.users, ranks, candidates], dim=1)
        if recommended is not None:
            rows = torch.cat([rows, recommended], dim=1)
        self._batches.append(rows[batch.users >= 0])

    def gather(self) -> NDArray[np.int64]:
        """Return (row of the user in the store, rank, number of candidates, K recommended items) of all ranks.

        This is a collective.

        Returns:
            [U, 3 + K], where K may be 0.
        """
        gathered = all_gather_rows(torch.cat(self._batches))
        return torch.cat([rows for (rows,) in gathered]).cpu().numpy()


def distinct_items(seen: Tensor, target: Tensor) -> Tensor:
    """Return the number of distinct items of each row except its target: [B] int64.

    Args:
        seen: [B, S] int64 items, padded with 0.
        target: [B] int64.
    """
    # In sorted order each distinct item begins where a value exceeds the previous value. 0 is padding.
    ordered = seen.masked_fill(seen == target[:, None], 0).sort(1).values
    return (ordered[:, :1] > 0).sum(1) + ((ordered[:, 1:] > ordered[:, :-1]).sum(1))


def write_ranks(
    folder: Path, gathered: NDArray[np.int64], data: RecommenderData, stage: str, protocol: str, step: int
) -> None:
    """Write `ranks-STAGE.npz`, which replaces the file of an earlier evaluation. A full disk costs the file alone.

    Args:
        folder: folder of the run.
        gathered: [U, 3 + K] from `RankCollector.gather`.
        data: the data, with users, items and training events.
        stage: `val` or `test`.
        protocol: what the model is given, see `RankingEvaluation`.
        step: optimizer steps of the checkpoint.
    """
    if not len(gathered):
        return
    rows, rank, candidates = gathered[:, :3].T
    recommended = gathered[:, 3:]
    users = data.evaluated_users(stage, rows)
    counts = Popularity(*data.training_events, data.catalog.num_items).counts.numpy()
    header = RankHeader(stage, protocol, step, *popularity_bounds(counts[1:]))
    items = data.catalog.item_ids
    targets = [items[item - 1] for item in users.targets.tolist()]
    content = encode(
        UserRanks(
            header=header,
            users=users.ids,
            targets=targets,
            history=users.history,
            popularity=counts[users.targets],
            rank=rank,
            candidates=candidates,
            recommended=Recommended(recommended, counts[1:]) if recommended.shape[1] else None,
        )
    )
    path = rank_file(folder, stage)
    try:
        write_atomically(path, content)
    except OSError as error:
        log.warning("%s cannot be written: %s. The ranks of this evaluation are lost", path, error)
        return
    log.info("wrote the ranks of %d users to %s", len(rank), path)
