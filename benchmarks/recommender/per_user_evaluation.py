"""Peer: evaluation of a user at a time, as in the public codes (kang205/SASRec, pmixer/SASRec.pytorch).

For each user Python fills the padded history, draws 100 negatives that the user has no event with, asks the model for
101 scores and sorts them. The public codes do this with gradients enabled; here they are disabled, which favors the
peer.
"""

from random import Random
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.recommender.plain_sasrec import PlainSASRec


class Case(NamedTuple):
    """A user to evaluate: the items of the history, and the held-out item that is ranked after them."""

    history: list[int]  # oldest first
    target: int


def evaluate_each(
    model: PlainSASRec, cases: list[Case], num_items: int, length: int, random: Random
) -> list[tuple[int, list[int]]]:
    """Return (rank of the target from 1, its 100 competitors) of each case."""
    return [_evaluate(model, case, num_items, length, random) for case in cases]


@torch.no_grad()
def _evaluate(model: PlainSASRec, case: Case, num_items: int, length: int, random: Random) -> tuple[int, list[int]]:
    items = np.zeros(length, np.int64)
    position = length - 1
    for item in reversed(case.history):
        items[position] = item
        position -= 1
        if position < 0:
            break
    known = {*case.history, case.target}
    candidates = [case.target]
    for _ in range(100):
        item = random.randint(1, num_items)
        while item in known:
            item = random.randint(1, num_items)
        candidates.append(item)
    state = model(torch.from_numpy(items[None]))[0, -1]
    scores = model.items(torch.tensor(candidates)) @ state
    # The position of the target, candidate 0, in the order of scores.
    return int((-scores).argsort().argsort()[0]) + 1, candidates[1:]
