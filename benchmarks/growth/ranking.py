"""Measures the evaluation and the prediction of SASRec by the number of items, in blocks of bounded memory."""

import numpy as np
import torch

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.training_steps import HIDDEN_SIZE
from datamodules.recommender.dataset import RankingDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.item_scores import DotProductScores, best_items
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.ranking_metrics import ranks

ITEMS = (30_000, 300_000, 1_000_000, 10_000_000)
_USERS, _EVENTS, _BEST = 32, 50, 10


def ranking(num_items: int, users: int = _USERS) -> Work:
    """Measure the rank of the held-out item and the best 10 of all items; counts the users."""
    encoder, examples = _prepared(num_items, users)

    @torch.no_grad()
    def work() -> Done:
        batch = examples[MicroBatchRequest(0, np.arange(users))]
        # Scores are computed block by block where they are read, so `ranks` and `best_items` are the work.
        scores = DotProductScores(encode_last_position(encoder, batch.history), encoder.output_weight)
        ranks(scores, batch.target, batch.seen)
        best_items(scores, _BEST, batch.seen)
        return Done(users)

    return work


def _prepared(num_items: int, users: int) -> tuple[SequenceEncoder, RankingDataset]:
    offsets = np.arange(users + 1) * (_EVENTS + 1)
    random = np.random.default_rng(1)
    items = random.integers(1, num_items + 1, offsets[-1]).astype(np.int32)
    events = EventArrays(offsets, items, np.arange(offsets[-1]), num_items)
    ends = offsets[1:] - 1
    # The last event of each user is held out.
    scale = personal_time_scale(events, ends)
    torch.manual_seed(1)
    encoder = SequenceEncoder(num_items, _EVENTS, ArchitectureSettings(hidden_size=HIDDEN_SIZE)).eval()
    return encoder, RankingDataset(events, (np.arange(users), ends), max_length=_EVENTS, time_scale=scale)
