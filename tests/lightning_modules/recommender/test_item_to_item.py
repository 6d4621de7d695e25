"""Tests ItemKNN and EASE against plain loops, and as baselines of a run."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.batch import RankingBatch, TrainingEvents
from lightning_modules.recommender import item_to_item
from lightning_modules.recommender.evaluation import RankingEvaluation
from lightning_modules.recommender.item_to_item import EASE, ItemBaselines, ItemKNN
from tests.conftest import TINY
from tests.support.recommender.histories import NUM_ITEMS, history_of, interactions

WITHOUT_THEM = {"popularity", "last-item-transition", "optimum", "optimum-without-times"}
ALL = ["--model.init_args.baselines", "[popularity, last-item-transition, item-knn, ease]"]


def sets_of(users, ends):
    return [set(user[:end]) for user, end in zip(users, ends, strict=True)]


def cosines(users):
    """Cosine similarity of two items' columns of zeros and ones, [V, V]; 0 for an item with itself."""
    holders = [{user for user, items in enumerate(users) if item in items} for item in range(1, NUM_ITEMS + 1)]
    return [
        [len(a & b) / math.sqrt(len(a) * len(b)) if a and b and a is not b else 0.0 for b in holders] for a in holders
    ]


def summed(weights, row, last_events):
    """Plain scores of all items: the sum of the weights from each distinct item of the last events."""
    known = set(row if last_events is None else row[len(row) - min(last_events, len(row)) :])
    return [sum(weights[item - 1][other] for item in sorted(known)) for other in range(NUM_ITEMS)]


@settings(max_examples=60, deadline=None)
@given(interactions(), st.integers(1, 8), st.sampled_from([None, 1, 3]), st.sampled_from([1, 13, 1 << 24]))
def test_item_knn_equals_cosine_loops(example, neighbours, last_events, block):
    users, ends, offsets, items, train_end = example
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_to_item, "_BLOCK", block)
        model = ItemKNN(TrainingEvents(offsets, items, train_end), NUM_ITEMS, neighbours, last_events)
    weights = []
    for item, row in enumerate(cosines(sets_of(users, ends))):
        others = [other for other in range(NUM_ITEMS) if other != item]
        # Nearly equal similarities are equal after rounding, and then the first item is the nearer.
        nearest = sorted(others, key=lambda other: (-round(row[other] * 2**30), other))[:neighbours]
        weights.append([row[other] if other in nearest else 0.0 for other in range(NUM_ITEMS)])
    rows = [*users, [], [3]]
    scores = model.scores(history_of(rows))
    for row, actual in zip(rows, scores, strict=True):
        expected = summed(weights, row, last_events)
        assert (actual[1:].double() / 2**30).tolist() == pytest.approx(expected, abs=len(row) * 2**-30)


@settings(max_examples=60, deadline=None)
@given(interactions(), st.floats(0.1, 100), st.sampled_from([None, 1, 3]), st.sampled_from([1, 13, 1 << 24]))
def test_ease_equals_a_ridge_regression_of_each_item_on_the_others(example, l2, last_events, block):
    users, ends, offsets, items, train_end = example
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_to_item, "_BLOCK", block)
        model = EASE(TrainingEvents(offsets, items, train_end), NUM_ITEMS, l2, last_events)
    matrix = np.array([[item in known for item in range(1, NUM_ITEMS + 1)] for known in sets_of(users, ends)], float)
    weights = np.zeros((NUM_ITEMS, NUM_ITEMS))
    for item in range(NUM_ITEMS):
        others = [other for other in range(NUM_ITEMS) if other != item]
        inputs = matrix[:, others]
        weights[others, item] = np.linalg.solve(
            inputs.T @ inputs + l2 * np.eye(len(others)), inputs.T @ matrix[:, item]
        )
    assert np.abs(model.weights[1:, 1:].numpy() - weights).max() < 2**-20
    rows = [*users, [], [3]]
    for row, found in zip(rows, model.scores(history_of(rows)), strict=True):
        assert found[1:].tolist() == pytest.approx(summed(weights, row, last_events), abs=len(row) * 2**-20)


def test_scores_do_not_depend_on_the_rest_of_the_batch():
    random = np.random.default_rng(0)
    offsets, items = np.arange(0, 2_001, 10), random.integers(1, 41, 2_000).astype(np.int32)
    events = TrainingEvents(offsets, items, offsets[1:])
    rows = [random.integers(1, 41, length).tolist() for length in random.integers(1, 30, 16)]
    for model in (EASE(events, 40, 3.0), ItemKNN(events, 40, 7)):
        together = model.scores(history_of(rows))
        assert (together.max(1).values > 0).all()
        for row, found in zip(rows, together, strict=True):
            assert torch.equal(model.scores(history_of([row[::-1]]))[0], found)


@pytest.mark.parametrize(
    ("setting", "value"), [("neighbours", 0), ("l2", 0.0), ("last_events", 0), ("max_items", 0), ("l2", math.nan)]
)
def test_impossible_settings_are_refused(setting, value):
    with pytest.raises(ValueError, match=f"model.init_args.item_baselines.{setting} must be"):
        ItemBaselines(**{setting: value})


def of_baselines(run, stage):
    return [(name, value) for record in run.records for name, value in record.items() if f"{stage}/baseline/" in name]


def test_item_to_item_recommenders_are_baselines_of_a_run_once(lockstep, messages):
    run = lockstep("fit", *TINY, *ALL, "--trainer.max_steps", "2", "--trainer.val_check_interval", "1", name="a")
    assert len(run.series("val/ndcg@10")) == 2
    found = dict(of_baselines(run, "val"))
    assert len(found) == len(of_baselines(run, "val"))
    # The next item follows from the last item, which both baselines read among ten and popularity ignores.
    for name in ("item-knn", "ease"):
        assert found[f"val/baseline/{name}/hr@10"] > found["val/baseline/popularity/hr@10"] + 0.1
    assert any("this model is worse than" in line and "ease (" in line for line in messages)


@pytest.mark.slow
def test_item_to_item_baselines_leave_the_numbers_of_a_run_alone(lockstep):
    short = [*TINY, "--trainer.max_epochs", "2"]
    with_all, plain = lockstep("fit", *short, *ALL, name="a"), lockstep("fit", *short, name="b")
    for metric in ("train/loss", "val/ndcg@10", "val/baseline/popularity/hr@10"):
        assert with_all.series(metric) == plain.series(metric)
    assert {name.split("/")[2] for name, _ in of_baselines(plain, "val")} == WITHOUT_THEM


@pytest.mark.slow
def test_more_items_than_the_limit_are_skipped_with_one_line(lockstep, messages):
    limit = ["--model.init_args.item_baselines.max_items", "59"]
    run = lockstep("fit", *TINY, *ALL, *limit, "--trainer.max_steps", "2", name="a")
    assert {name.split("/")[2] for name, _ in of_baselines(run, "val")} == WITHOUT_THEM
    (line,) = (line for line in messages if "skipped" in line)
    assert line == (
        "baselines item-knn and ease are skipped: found 60 items, expected at most "
        "model.init_args.item_baselines.max_items 59"
    )
    at_limit = lockstep("validate", "--model.init_args.item_baselines.max_items", "60", name="a")
    assert "val/baseline/ease/hr@10" in dict(of_baselines(at_limit, "val"))


def test_the_limit_is_that_of_all_pairs_of_items():
    data = SimpleNamespace(
        catalog=SimpleNamespace(num_items=3),
        optima={},
        training_events=TrainingEvents(np.array([0, 3]), np.array([1, 2, 3], np.int32), np.array([3])),
    )
    evaluated = {}
    for limit in (2, 3):
        evaluation = RankingEvaluation(True, ["popularity", "item-knn", "ease"], ItemBaselines(max_items=limit))
        evaluation.begin("val", data, torch.device("cpu"), sanity_checking=False)
        batch = RankingBatch(
            history_of([[1]]), torch.tensor([2]), torch.tensor([[1]]), torch.zeros(1, 0), torch.zeros(1)
        )
        evaluation.update(torch.zeros(1, 4), batch)
        evaluated[limit] = {name.split("/")[1] for name, _ in evaluation.compute() if name.startswith("baseline/")}
    assert evaluated == {2: {"popularity"}, 3: {"popularity", "item-knn", "ease"}}
