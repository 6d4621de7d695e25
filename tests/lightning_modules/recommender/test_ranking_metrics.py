"""Tests ranks and ranking metrics against loops over users."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.ranking_metrics import RankingMetrics, candidate_ranks, ranks

CUTOFFS = (1, 5, 10, 20)


def plain_rank(scores: list[float], target: int, seen: set[int]) -> int:
    """Return the rank of a target by its definition."""
    if target == 0:
        return 0
    rank = 1
    for item in range(1, len(scores)):
        if item != target and item not in seen and not scores[item] < scores[target]:
            rank += 1
    return rank


@st.composite
def rankings(draw):
    rows, items = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    # Few distinct values: nearly every example has ties, infinities or NaN.
    value = st.sampled_from([0.0, 1.0, 2.0, -math.inf, math.inf, math.nan])
    scores = draw(st.lists(st.lists(value, min_size=items + 1, max_size=items + 1), min_size=rows, max_size=rows))
    item = st.integers(0, items)
    target = draw(st.lists(item, min_size=rows, max_size=rows))
    seen = draw(st.lists(st.lists(item, min_size=4, max_size=4), min_size=rows, max_size=rows))
    return scores, target, seen


@settings(max_examples=200, deadline=None)
@given(rankings())
def test_ranks_equal_a_loop_over_users(example):
    scores, target, seen = example
    actual = ranks(torch.tensor(scores), torch.tensor(target), torch.tensor(seen))
    assert actual.tolist() == [plain_rank(s, t, set(n)) for s, t, n in zip(scores, target, seen, strict=True)]
    actual = ranks(torch.tensor(scores), torch.tensor(target))
    assert actual.tolist() == [plain_rank(s, t, set()) for s, t in zip(scores, target, strict=True)]


@settings(max_examples=100, deadline=None)
@given(rankings())
def test_candidate_ranks_equal_ranks_among_the_candidates_alone(example):
    scores, target, candidates = example
    actual = candidate_ranks(torch.tensor(scores), torch.tensor(target), torch.tensor(candidates))
    expected = [
        plain_rank([0.0, row[goal], *(row[c] for c in chosen)], 1, set()) if goal else 0
        for row, goal, chosen in zip(scores, target, candidates, strict=True)
    ]
    assert actual.tolist() == expected


def test_equal_scores_rank_last():
    assert ranks(torch.zeros(1, 101), torch.tensor([7])).tolist() == [100]


def test_seen_items_do_not_compete_but_a_seen_target_does():
    scores = torch.tensor([[9.0, 4.0, 3.0, 2.0, 1.0]])
    assert ranks(scores, torch.tensor([3]), torch.tensor([[1, 2, 0]])).tolist() == [1]
    assert ranks(scores, torch.tensor([3]), torch.tensor([[2, 3, 0]])).tolist() == [2]


@pytest.mark.parametrize("broken", [3, 5], ids=["target", "another"])
def test_a_score_of_nan_never_improves_a_rank(broken):
    scores = torch.zeros(1, 6)
    scores[0, 3] = 1.0
    assert ranks(scores, torch.tensor([3])).tolist() == [1]
    scores[0, broken] = math.nan
    assert ranks(scores, torch.tensor([3])).tolist() == [5 if broken == 3 else 2]


def test_scores_are_left_as_they_are():
    scores = torch.rand(3, 8)
    before = scores.clone()
    ranks(scores, torch.tensor([1, 2, 0]), torch.tensor([[3], [4], [0]]))
    assert torch.equal(scores, before)


def plain_metrics(values: list[int]) -> dict[str, float]:
    values = [rank for rank in values if rank > 0]
    metrics = {}
    for k in CUTOFFS:
        metrics[f"hr@{k}"] = sum(r <= k for r in values) / len(values)
        metrics[f"ndcg@{k}"] = sum(1 / math.log2(r + 1) for r in values if r <= k) / len(values)
        metrics[f"mrr@{k}"] = sum(1 / r for r in values if r <= k) / len(values)
    return metrics


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60).filter(any))
def test_metrics_equal_a_loop_over_users(values):
    metrics = RankingMetrics()
    metrics.update(torch.tensor(values))
    found = metrics.compute()
    assert {name: value.item() for name, value in found.items()} == pytest.approx(plain_metrics(values), rel=1e-12)
    assert all(value.dtype == torch.float64 for value in found.values())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=60).filter(any), st.data())
def test_metrics_are_equal_to_the_bit_however_users_are_split(values, data):
    whole = RankingMetrics()
    whole.update(torch.tensor(values))
    cut = data.draw(st.integers(0, len(values)))
    shares = [RankingMetrics() for _ in range(2)]
    for share, part in zip(shares, (values[cut:], values[:cut]), strict=True):
        for rank in part:
            share.update(torch.tensor([rank]))
    merged = RankingMetrics()
    for name, reduce in merged._reductions.items():
        assert reduce is not None
        setattr(merged, name, reduce(torch.stack([getattr(share, name) for share in shares])))
        assert not getattr(merged, name).is_floating_point()
    merged._update_count = 1
    assert {k: v.item() for k, v in merged.compute().items()} == {k: v.item() for k, v in whole.compute().items()}


def test_without_users_every_metric_is_nan():
    metrics = RankingMetrics()
    metrics.update(torch.zeros(3, dtype=torch.int64))
    metrics.update(torch.zeros(0, dtype=torch.int64))
    values = metrics.compute()
    assert "ndcg@10" in values
    assert all(value.isnan() for value in values.values())


def test_reset_forgets_earlier_users():
    metrics = RankingMetrics(cutoffs=(1, 3))
    metrics.update(torch.tensor([1, 1]))
    metrics.reset()
    metrics.update(torch.tensor([2]))
    assert metrics.compute()["hr@1"] == 0
    assert metrics.compute()["mrr@3"] == 0.5


def test_protocols_share_no_name():
    full, sampled = RankingMetrics(), RankingMetrics("sampled_100")
    for metrics in (full, sampled):
        metrics.update(torch.tensor([1]))
    assert "hr@10" in full.compute()
    assert "sampled_100/hr@10" in sampled.compute()
    assert not set(full.compute()) & set(sampled.compute())


def test_a_cast_of_the_model_leaves_the_counts_alone():
    metrics = torch.nn.ModuleDict({"ranking": RankingMetrics()}).to(torch.bfloat16)["ranking"]
    metrics.update(torch.full((300,), 2))
    assert metrics.count == 300
    assert metrics.compute()["hr@5"] == 1
