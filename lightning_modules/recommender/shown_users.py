"""A user of an evaluation as it is shown: what came last, what came next, and what was recommended."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.recommender.batch import RankingBatch
from engine.examples import Example
from lightning_modules.recommender.ranking import ranks

LAST, BEST = 10, 10
"""Items of the history and recommendations that are shown."""


class ShownUser(NamedTuple):
    """In plain numbers; items from 1."""

    last: tuple[int, ...]  # of the history, the newest first
    events: int  # that the model was given
    target: int  # the held-out item
    rank: int  # of the target, from 1
    best: tuple[int, ...]  # recommendations, the best first


def shown_user(scores: Tensor, batch: RankingBatch, row: int, remove_seen: bool) -> ShownUser:
    """
    Args:
        scores: [B, V + 1]; column j is item j, column 0 is ignored. They stay as they are.
        remove_seen: whether items of the history are out of competition.
    """
    own, target = scores[row : row + 1].clone(), batch.target[row : row + 1]
    seen = batch.seen[row : row + 1] if remove_seen else None
    rank = int(ranks(own, target, seen))
    own[:, 0] = -torch.inf
    if seen is not None:
        own.scatter_(1, seen, -torch.inf)
    best = own[0].topk(min(BEST, own.shape[1] - 1))
    events = int(batch.history.lengths[row])
    history = batch.history.items[row, max(0, events - LAST) : events].tolist()
    return ShownUser(
        tuple(reversed(history)), events, int(target), rank,
        tuple(best.indices[best.values > -torch.inf].tolist()),
    )  # fmt: skip


def example(user: str, shown: ShownUser, title: Callable[[int], str]) -> Example:
    """It is right where the item is among the recommendations; where it is not, it follows them with its rank."""
    given = f"the last {len(shown.last)} of {shown.events}" if shown.events > len(shown.last) else "all"
    right = shown.rank <= BEST
    answer = _lines(shown.best, title)
    return Example(
        name=f"user {user}",
        question=f"{given} events, the newest first:\n{_lines(shown.last, title)}",
        expected=title(shown.target),
        answer=answer if right else f"{answer}\n...\n{shown.rank}. {title(shown.target)}",
        right=right,
    )


def _lines(items: Iterable[int], title: Callable[[int], str]) -> str:
    return "\n".join(f"{place}. {title(item)}" for place, item in enumerate(items, start=1))
