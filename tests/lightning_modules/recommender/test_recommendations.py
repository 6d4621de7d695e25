"""Tests that lists of items restrict recommendations and change nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datamodules.recommender.batch import Catalog
from lightning_modules.recommender.export.runtime import ExportedRecommender
from lightning_modules.recommender.recommendations import Recommendations
from tests.support.recommender.encoders import LONGEST, V, make_encoder

IDS = [f"id-{number}" for number in range(1, V + 1)]
CATALOG = Catalog(V, LONGEST, IDS, None)

items = st.sets(st.integers(1, V))


@given(scores=st.permutations(range(V)), seen=items, excluded=items, top_k=st.integers(1, V + 3))
def test_the_best_items_are_those_of_a_sorted_list(scores, seen, excluded, top_k):
    mask = np.isin(np.arange(V + 1), [0, *excluded])
    chosen = Recommendations(CATALOG, top_k, mask)
    row = torch.tensor([[-torch.inf, *map(float, scores)]])
    best, values = chosen.best(row, torch.tensor([[0, *seen]]))
    answer = chosen.answer(best[0].tolist(), values[0].tolist())["recommendations"]
    left = sorted(((score, item) for item, score in enumerate(scores, 1) if item not in seen | excluded), reverse=True)
    assert [(recommendation["score"], recommendation["item"]) for recommendation in answer] == [
        (score, f"id-{item}") for score, item in left[:top_k]
    ]
    popular = chosen.popular(list(scores))
    counted = sorted(((-score, item) for item, score in enumerate(scores, 1) if score and item not in excluded))
    assert [recommendation["item"] for recommendation in popular["recommendations"]] == [
        f"id-{item}" for _, item in counted[:top_k]
    ]
    assert popular["fallback"] == "popularity"


def test_an_exported_model_orders_items_of_equal_scores_by_number():
    """As `predict` does. Cold items with equal features have equal scores."""
    encoder = make_encoder()
    torch.nn.init.zeros_(encoder.items.weight)  # all scores are 0
    model = ExportedRecommender(encoder, {"top_k": V, "remove_seen": False}, IDS, None)
    found = [recommendation.item for recommendation in model.recommend(items=["id-2"], times=[10])]
    assert found == [f"id-{number}" for number in range(1, V + 1)]


def test_an_exported_model_takes_lists_of_ids():
    settings = {"top_k": V, "remove_seen": True}
    model = ExportedRecommender(make_encoder(), settings, IDS, None, popularity=list(range(V, 0, -1)))
    history = {"items": ["id-2", "id-5"], "times": [10, 20]}
    everything = model.recommend(**history)
    assert len(everything) == V - 2
    allow, deny = [*IDS[:6], "no-such-item"], ["id-1", "id-2", "other"]
    assert model.recommend(**history, allow=allow) == [
        recommendation for recommendation in everything if recommendation.item in allow
    ]
    assert model.recommend(**history, deny=deny) == [
        recommendation for recommendation in everything if recommendation.item not in deny
    ]
    both = model.recommend(**history, allow=allow, deny=deny)
    assert both
    assert both == [
        recommendation
        for recommendation in everything
        if recommendation.item in allow and recommendation.item not in deny
    ]
    popular = model.recommend([], [], allow=allow, deny=deny)
    assert [(recommendation.item, recommendation.fallback) for recommendation in popular] == [
        (f"id-{n}", "popularity") for n in (3, 4, 5, 6)
    ]
    with pytest.raises(ValueError, match="allow: found no id of an item of the model"):
        model.recommend(**history, allow=["no-such-item"])


LISTS = ["--data.init_args.allow_items", "allow.txt", "--data.init_args.deny_items", "deny.txt"]
ALLOW, DENY = {f"item-{number}" for number in range(1, 25)}, {"item-3", "item-4"}


def write_lists(folder):
    (folder / "allow.txt").write_text("".join(f"{item}\n" for item in [*sorted(ALLOW), "ghost"]))
    (folder / "deny.txt").write_text("\n".join(DENY))


def test_predict_recommends_allowed_items_alone(lockstep, done, tmp_path, messages):
    write_lists(tmp_path)
    lockstep("predict", *LISTS, "--model.init_args.top_k", "60", name=done.folder.name)
    assert sum("allow.txt: 1 of 25 ids are not items of the model and are ignored: 'ghost'" in m for m in messages) == 1
    rows = done.predictions()
    assert len(rows) == 200
    assert {recommendation["item"] for row in rows for recommendation in row["recommendations"]} == ALLOW - DENY


@pytest.mark.slow
def test_lists_change_neither_order_nor_scores(lockstep, done, tmp_path):
    lockstep("predict", "--model.init_args.top_k", "60", name=done.folder.name)
    everything = done.predictions()
    write_lists(tmp_path)
    lockstep("predict", *LISTS, name=done.folder.name)
    for row, whole in zip(done.predictions(), everything, strict=True):
        left = [recommendation for recommendation in whole["recommendations"] if recommendation["item"] in ALLOW - DENY]
        assert row["recommendations"] == left[:10]
        assert left
