"""Renders previews of users in an evaluation: their last items, the next item and the recommendations."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from datamodules.recommender.batch import RankingBatch
from engine.telemetry.sample_previews import SamplePreview
from lightning_modules.recommender.item_scores import Scores, as_blocks, best_items
from lightning_modules.recommender.ranking_metrics import ranks

LAST, BEST = 10, 10
"""Number of items of the history and of recommendations in a preview."""


class UserPreview(NamedTuple):
    """A user of a preview. Items count from 1."""

    last: tuple[int, ...]  # last items of the history, the newest first
    events: int  # length of the history
    target: int  # held-out item
    rank: int  # rank of the target, from 1
    best: tuple[int, ...]  # recommendations, the best first


def user_preview(scores: Scores, batch: RankingBatch, row: int, remove_seen: bool) -> UserPreview:
    """Return the preview of a user.

    Args:
        scores: scores of all items. Not modified.
        batch: batch with the user.
        row: row of the user.
        remove_seen: whether items of the history are excluded.
    """
    user_scores, target = as_blocks(scores).select_user(row), batch.target[row : row + 1]
    seen = batch.seen[row : row + 1] if remove_seen else None
    rank = int(ranks(user_scores, target, seen))
    best, values = best_items(user_scores, BEST, seen)
    events = int(batch.history.lengths[row])
    history = batch.history.items[row, max(0, events - LAST) : events].tolist()
    return UserPreview(
        tuple(reversed(history)), events, int(target), rank,
        tuple(best[values > -torch.inf].tolist()),
    )  # fmt: skip


def render_preview(user: str, preview: UserPreview, title: Callable[[int], str]) -> SamplePreview:
    """Render a preview. It is right if the target is recommended; otherwise the target follows with its rank."""
    history = f"the last {len(preview.last)} of {preview.events}" if preview.events > len(preview.last) else "all"
    right = preview.rank <= BEST
    answer = _numbered_titles(preview.best, title)
    return SamplePreview(
        name=f"user {user}",
        question=f"{history} events, the newest first:\n{_numbered_titles(preview.last, title)}",
        expected=title(preview.target),
        answer=answer if right else f"{answer}\n...\n{preview.rank}. {title(preview.target)}",
        right=right,
    )


def _numbered_titles(items: Iterable[int], title: Callable[[int], str]) -> str:
    return "\n".join(f"{rank}. {title(item)}" for rank, item in enumerate(items, start=1))
