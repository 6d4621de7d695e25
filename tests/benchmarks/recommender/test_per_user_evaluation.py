"""Tests that ranks are equal whether users are evaluated singly or in batches."""

from random import Random

import numpy as np
import torch

from benchmarks.recommender.evaluation import evaluate_batches, held_out_cases, ranked_examples
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_user_evaluation import evaluate_each
from benchmarks.recommender.plain_sasrec import PlainSASRec
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.last_position import encode_last_position
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.ranking_metrics import candidate_ranks

NUM_USERS, NUM_ITEMS, LENGTH = 12, 2300, 30


def _encoder() -> SequenceEncoder:
    torch.manual_seed(0)
    encoder = SequenceEncoder(NUM_ITEMS, LENGTH, ArchitectureSettings(hidden_size=8)).eval()
    torch.nn.init.normal_(encoder.items.weight[1:])  # scores far apart, so that rounding changes no rank
    return encoder


@torch.no_grad()
def test_both_evaluations_rank_the_same_candidates_alike() -> None:
    events, encoder = movielens_like(NUM_USERS, NUM_ITEMS), _encoder()
    cases = held_out_cases(events)
    one_by_one = evaluate_each(PlainSASRec(encoder).eval(), cases, NUM_ITEMS, LENGTH, Random(1))
    theirs, candidates = zip(*one_by_one, strict=True)
    for case, negatives in zip(cases, candidates, strict=True):
        assert len(negatives) == 100
        assert not {*case.history, case.target} & set(negatives)
    batch = ranked_examples(events, LENGTH, np.array(candidates))[MicroBatchRequest(0, np.arange(NUM_USERS))]
    assert batch.target.tolist() == [case.target for case in cases]
    scores = encoder.scores(encode_last_position(encoder, batch.history))
    ours = candidate_ranks(scores, batch.target, batch.candidates)
    assert ours.tolist() == list(theirs)
    assert len(set(theirs)) > 3


def test_both_protocols_rank_every_user() -> None:
    events, encoder = movielens_like(NUM_USERS, NUM_ITEMS), _encoder()
    for protocol, worst in (("full", NUM_ITEMS), ("sampled_100", 101)):
        found = evaluate_batches(encoder, events, protocol, 5, LENGTH)
        assert len(found) == NUM_USERS
        assert 1 <= min(found) <= max(found) <= worst
