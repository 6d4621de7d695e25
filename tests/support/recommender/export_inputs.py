"""Batches for exports of a recommender, and the scores that are expected of them."""

import torch

from datamodules.recommender.batch import RankingBatch
from tests.support.recommender.encoders import V

IDS = [f"id-{number}" for number in range(1, V + 1)]


def ranking(history):
    none = torch.zeros(len(history.lengths), 0, dtype=torch.int64)
    rows = torch.arange(len(history.lengths))
    return RankingBatch(history, torch.zeros_like(history.lengths), history.items, none, rows)


def expected_scores(encoder, history):
    with torch.no_grad():
        states = encoder.eval()(history)
        return encoder.scores(states[torch.arange(len(states)), (history.lengths - 1).clamp_min(0)])
