"""Formats the recommendations of `predict`: the best items by score, or the most popular ones, as JSON."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import Catalog, RankingBatch
from lightning_modules.recommender.baselines import POPULARITY, most_popular
from lightning_modules.recommender.item_scores import Scores, best_items


class Recommendations:
    """Selects items and describes them.

    Args:
        catalog: ids and titles of the items.
        top_k: largest number of items.
        excluded: [num_items + 1] true for items that are never recommended; None: all may be.
    """

    def __init__(self, catalog: Catalog, top_k: int, excluded: NDArray[np.bool_] | None = None) -> None:
        self.catalog, self.top_k, self.excluded = catalog, top_k, excluded
        self._popular: dict[str, Any] | None = None
        self._mask = None if excluded is None else torch.from_numpy(excluded)

    def for_batch(
        self, scores: Scores, batch: RankingBatch, remove_seen: bool, counts: Callable[[], Sequence[int]]
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return (row of the history, answer) of each history of a batch, without padding rows.

        Args:
            scores: scores of all items.
            batch: histories.
            remove_seen: whether the items of a history are excluded.
            counts: returns the [num_items] training events of item 1, 2, ...; called once, for a history without a
                known item.
        """
        best = self.best(scores, batch.seen if remove_seen else None)
        answers: list[tuple[int, dict[str, Any]]] = []
        columns = (column.tolist() for column in (batch.users, batch.history.lengths, *best))
        for row, events, items, values in zip(*columns, strict=True):
            if row >= 0:
                answers.append((row, self.answer(items, values) if events else {**self._fallback(counts)}))
        return answers

    def _fallback(self, counts: Callable[[], Sequence[int]]) -> Mapping[str, Any]:
        if self._popular is None:
            self._popular = self.popular(counts())
        return self._popular

    def best(self, scores: Scores, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the best items of each history, the best first. Excluded items have -inf.

        Args:
            scores: scores of all items.
            seen: [B, S] items to exclude from the row, padded with 0; None: exclude none.

        Returns:
            items and scores, [B, min(top_k, num_items)] each.
        """
        return best_items(scores, self.top_k, seen, self._mask)

    def popular(self, counts: Sequence[int]) -> dict[str, Any]:
        """Return the answer to a history without an item that the model knows.

        Args:
            counts: [num_items], training events of item 1, 2, ...
        """
        if self.excluded is not None:
            # `most_popular` omits items without an event.
            counts = np.where(self.excluded[1:], 0, counts).tolist()
        best = most_popular(counts, self.top_k)
        return {**self.answer([item for item, _ in best], [count for _, count in best]), "fallback": POPULARITY}

    def answer(self, items: Sequence[int], scores: Sequence[float]) -> dict[str, Any]:
        """Return items with their ids, scores and titles, up to the first excluded item."""
        answers = []
        for item, score in zip(items, scores, strict=True):
            if score == -torch.inf:  # fewer items than top_k are left
                break
            answer: dict[str, Any] = {"item": self.catalog.item_ids[item - 1], "score": round(score, 4)}
            if self.catalog.titles is not None:
                answer["title"] = self.catalog.titles[item - 1]
            answers.append(answer)
        return {"recommendations": answers}
