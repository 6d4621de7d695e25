"""Measures the evaluation of held-out items: the project's batched ranking beside a loop over users."""

from random import Random
from typing import Literal

import numpy as np
import torch

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_user_evaluation import Case, evaluate_each
from benchmarks.recommender.plain_sasrec import PlainSASRec
from datamodules.recommender.dataset import RankingDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.sampled_candidates import sampled_candidates
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import EvaluationSampler
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.ranking_metrics import candidate_ranks, ranks

Protocol = Literal["full", "sampled_100"]


def one_by_one(num_users: int = 128, length: int = 200) -> Work:
    """Evaluate each user separately against 100 negatives."""
    events = movielens_like(num_users)
    cases = held_out_cases(events)
    model = PlainSASRec(_encoder(length, events.num_items)).eval()

    def work() -> Done:
        evaluate_each(model, cases, events.num_items, length, Random(1))
        return Done(num_users)

    return work


def batched(protocol: Protocol, num_users: int = 512, batch_size: int = 256, length: int = 200) -> Work:
    """Evaluate batches of users against all items, or against 100 candidates, whose sampling is included."""
    events = movielens_like(num_users)
    encoder = _encoder(length, events.num_items).eval()

    def work() -> Done:
        evaluate_batches(encoder, events, protocol, batch_size, length)
        return Done(num_users)

    return work


@torch.no_grad()
def evaluate_batches(
    encoder: SequenceEncoder, events: EventArrays, protocol: Protocol, batch_size: int, length: int
) -> list[int]:
    """Return the rank of every user's last item, computed with the project's own parts."""
    candidates = sampled_candidates(events, seed=1) if protocol == "sampled_100" else None
    examples = ranked_examples(events, length, candidates)
    result: list[int] = []
    for draw in EvaluationSampler(len(examples), batch_size):
        # Made inside the work: the cost of a user includes the rows.
        batch = examples[draw]
        scores = encoder.scores(encode_last_position(encoder, batch.history))
        if protocol == "full":
            found = ranks(scores, batch.target, batch.seen)
        else:
            found = candidate_ranks(scores, batch.target, batch.candidates)
        result += found.tolist()
    return result


def ranked_examples(events: EventArrays, length: int, candidates: np.ndarray | None) -> RankingDataset:
    """Return every user's last event, after all earlier events."""
    users, ends = np.arange(len(events.offsets) - 1), events.offsets[1:] - 1
    scale = personal_time_scale(events, ends - 1)
    return RankingDataset(events, (users, ends), max_length=length, time_scale=scale, candidates=candidates)


def held_out_cases(events: EventArrays) -> list[Case]:
    """Return the same as Python lists."""
    users = np.split(events.items, events.offsets[1:-1])
    return [Case(items[:-1].tolist(), int(items[-1])) for items in users]


def _encoder(length: int, num_items: int) -> SequenceEncoder:
    torch.manual_seed(1)
    return SequenceEncoder(num_items, length)
