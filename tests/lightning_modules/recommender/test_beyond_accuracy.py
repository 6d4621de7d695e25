"""Tests coverage, novelty and popularity of recommendations against loops over users."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.beyond_accuracy import BeyondAccuracyMetrics, recommended_items
from lightning_modules.recommender.item_ranks.rank_file import read_ranks
from lightning_modules.recommender.item_ranks.recommendation_metrics import recommendation_metrics

V = 8


def plain_metrics(scores, seen, users, events, k):
    """Compute the metrics by their definition."""
    recommended = []
    for row, excluded, user in zip(scores, seen, users, strict=True):
        left = [item for item in range(1, V + 1) if item not in excluded]
        recommended += sorted(left, key=lambda item: -row[item])[:k] if user >= 0 else []
    if not recommended:
        return {f"coverage@{k}": 0, f"novelty@{k}": math.nan, f"popularity@{k}": math.nan}
    bits = [-math.log2(max(events[item], 1) / sum(events[1:])) for item in recommended]
    return {
        f"coverage@{k}": len(set(recommended)) / V,
        f"novelty@{k}": sum(bits) / len(bits),
        f"popularity@{k}": sum(events[item] for item in recommended) / len(recommended),
    }


@st.composite
def batches(draw):
    rows = draw(st.integers(1, 5))
    scores = [[math.nan, *draw(st.permutations(range(V)))] for _ in range(rows)]  # no ties
    seen = draw(st.lists(st.lists(st.integers(0, V), min_size=7, max_size=7), min_size=rows, max_size=rows))
    users = draw(st.lists(st.integers(-1, 3), min_size=rows, max_size=rows))
    return scores, seen, users


@settings(max_examples=60)
@given(batches(), st.lists(st.integers(0, 9), min_size=V, max_size=V).filter(any), st.integers(1, V + 2))
def test_metrics_equal_a_loop_over_users(batch, counts, k):
    scores, seen, users = batch
    events = [5, *counts]  # entry 0 is no item
    for excluded in (seen, None):
        metrics = BeyondAccuracyMetrics("", k, torch.tensor(events))
        given_scores = torch.tensor(scores)
        items = recommended_items(given_scores, k, None if excluded is None else torch.tensor(seen))
        metrics.update(items, torch.tensor(users))
        expected = plain_metrics(scores, excluded or [[]] * len(users), users, events, k)
        actual = {name: value.item() for name, value in metrics.compute().items()}
        assert actual == pytest.approx(expected, rel=1e-12, nan_ok=True)
        assert torch.equal(given_scores.nan_to_num(), torch.tensor(scores).nan_to_num()), "not modified"


def test_batches_add_up_and_the_protocol_begins_the_names():
    metrics = BeyondAccuracyMetrics("request_time", 1, torch.tensor([0, 6, 1, 1]))
    for best in (1, 2):
        metrics.update(recommended_items(torch.eye(4)[best : best + 1], 1, None), torch.tensor([7]))
    values = {name: value.item() for name, value in metrics.compute().items()}
    assert values == pytest.approx(
        {
            "request_time/coverage@1": 2 / 3,
            "request_time/novelty@1": (math.log2(8 / 6) + math.log2(8)) / 2,
            "request_time/popularity@1": 3.5,
        }
    )


def test_an_evaluation_logs_coverage_popularity_and_novelty_on_demand(done, lockstep):
    name = done.folder.name
    lockstep("test", name=name)
    lockstep("test", "--model.init_args.beyond_accuracy", "true", "--model.init_args.top_k", "3", name=name)
    without, found = done.records[-2:]
    assert not [metric for metric in without if "coverage" in metric or "novelty" in metric]
    assert 0 < found["test/coverage@3"] <= 1
    assert found["test/popularity@3"] > 0
    # Of 60 items, an average item has the self-information log2(60); recommended items are more popular.
    assert 3 < found["test/novelty@3"] < math.log2(60) + 0.1
    assert "test/baseline/popularity/ndcg@10" in found
    assert "test/baseline/popularity/coverage@3" not in found


def test_the_kept_items_have_the_metrics_of_the_evaluation(done, lockstep):
    """Computed by `report` from the file, at the cut-off of the log and at a smaller one."""
    options = ["--model.init_args.beyond_accuracy", "true", "--model.init_args.top_k", "3"]
    path, logged, files = done.folder / "ranks-test.npz", {}, []
    for k, batch_size in (("1", "48"), ("3", "48"), ("3", "7")):
        size = ["--data.init_args.evaluation_batch_size", batch_size]
        lockstep("test", *options[:3], k, *size, name=done.folder.name)
        logged |= {name: value for name, value in done.records[-1].items() if name.endswith(f"@{k}")}
        files.append(path.read_bytes())
    assert files[1] == files[2], "batches change nothing"
    ranks = read_ranks(path)
    assert ranks.recommended.items.shape == (200, 3)
    for k in (1, 3):
        found = recommendation_metrics(ranks.recommended, np.arange(200), k)
        assert found.coverage == pytest.approx(logged[f"test/coverage@{k}"], abs=1e-6)
        assert found.novelty.value == pytest.approx(logged[f"test/novelty@{k}"], rel=1e-6)
        assert found.popularity.value == pytest.approx(logged[f"test/popularity@{k}"], rel=1e-6)
