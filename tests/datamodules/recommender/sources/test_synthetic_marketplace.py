"""Tests the synthetic marketplace: events, probabilities, and the gain of a model that reads times."""

import numpy as np
import pytest
import torch

from datamodules.recommender.dataset import RankingDataset
from datamodules.recommender.sources.synthetic_marketplace import Marketplace
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.ranking_metrics import RankingMetrics, ranks

SMALL = Marketplace(num_users=2_000, num_items=60, min_length=5, max_length=20, seed=3)


@pytest.fixture(scope="module")
def events():
    return SMALL.events()


def last_events(market, events, cut=1):
    """A batch in which every shopper's history ends ``cut`` events before the end."""
    users = np.arange(market.num_users)
    scale = personal_time_scale(events, events.offsets[1:] - 2)
    data = RankingDataset(events, (users, events.offsets[1:] - cut), max_length=market.max_length, time_scale=scale)
    return data[MicroBatchRequest(0, users)]


def test_the_same_seed_draws_the_same_events(events):
    again = Marketplace(num_users=2_000, num_items=60, min_length=5, max_length=20, seed=3).events(chunk=7)
    for name in ("offsets", "items", "times"):
        assert np.array_equal(getattr(events, name), getattr(again, name))
    other = Marketplace(num_users=2_000, num_items=60, min_length=5, max_length=20, seed=4).events()
    assert not np.array_equal(events.items[:100], other.items[:100])
    assert not np.array_equal(events.times[:100], other.times[:100])


def test_events_are_well_formed(events):
    lengths = np.diff(events.offsets)
    assert (lengths.min(), lengths.max()) == (5, 20)
    assert (events.items.min(), events.items.max()) == (1, 60)
    users = np.repeat(np.arange(SMALL.num_users), lengths)
    assert len(np.unique(users * 61 + events.items)) == len(users)  # no shopper takes an item twice
    assert (np.diff(events.times)[np.diff(users) == 0] > 0).all()


def test_personal_units_separate_visits_from_pauses(events):
    scale = personal_time_scale(events, events.offsets[1:] - 2)
    users = np.repeat(np.arange(SMALL.num_users), np.diff(events.offsets))
    inside = np.diff(users) == 0
    units = (np.diff(events.times) / scale[users[1:]])[inside]
    assert set(units[units < 256].tolist()) == {1, 2, 3, 4}
    # The second event of a shopper is never after a pause; the other gaps are coins.
    coins = (np.arange(len(users)) - events.offsets[users] > 1)[1:][inside]
    assert abs((units[coins] >= 256).mean() - SMALL.pause_share) < 0.02


def test_probabilities_sum_to_one_and_spare_what_was_taken():
    taken = np.zeros((4, 61), bool)
    taken[:, [5, 9]] = True
    chances = SMALL.probabilities(np.array([5, 5, 9, 0]), np.array([True, False, True, True]), taken)
    assert chances.sum(1) == pytest.approx(1)
    assert not chances[:, [0, 5, 9]].any()
    assert set(np.argsort(-chances[0])[:4]) >= set(SMALL.lists[1, 5].tolist()) - {5, 9}
    assert np.ptp(chances[3][chances[3] > 0]) < 1e-15


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_probabilities_are_the_frequencies(events, cut):
    batch = last_events(SMALL, events, cut)
    target = batch.target.numpy()
    rows = np.arange(len(target))
    for scores in (SMALL.optimal_scores(batch.history), SMALL.time_blind_scores(batch.history)):
        chances = scores.numpy()
        order = np.argsort(-chances, 1)
        for rank in range(6):  # how often the item of this rank is the next item
            predicted = chances[rows, order[:, rank]]
            happened = order[:, rank] == target
            deviation = np.sqrt((predicted * (1 - predicted)).sum())
            assert abs(happened.sum() - predicted.sum()) < 4 * deviation


def test_the_lists_follow_the_gap(events):
    """Counted without the scores under test: after a pause items come from one list, otherwise from the other."""
    batch = last_events(SMALL, events)
    rows, lengths = np.arange(len(batch.target)), batch.history.lengths.numpy()
    times, last = batch.history.times.numpy(), batch.history.items.numpy()[rows, lengths - 1]
    pause = times[rows, lengths - 1] - times[rows, lengths - 2] > 3_600
    for back in (False, True):
        chosen = pause == back
        own, other = (
            SMALL.lists[kind, last[chosen]] == batch.target.numpy()[chosen, None] for kind in (int(back), 1 - back)
        )
        assert own.any(1).mean() > 0.75
        assert other.any(1).mean() < 0.25


def test_the_clock_is_worth_a_clear_margin():
    market = Marketplace()
    batch = last_events(market, market.events())
    values = {}
    for name, score in (("optimal", market.optimal_scores), ("time_blind", market.time_blind_scores)):
        metrics = RankingMetrics()
        metrics.update(ranks(score(batch.history), batch.target, batch.seen))
        values[name] = metrics.compute()["ndcg@10"].item()
    assert values["optimal"] > values["time_blind"] + 0.1
    assert 0.5 < values["time_blind"] < values["optimal"] < 0.8


def test_scores_rank_equals_by_number():
    batch = last_events(SMALL, SMALL.events())
    for scores in (SMALL.optimal_scores(batch.history), SMALL.time_blind_scores(batch.history)):
        assert scores.shape == (2_000, 61)
        assert all(len(row.unique()) == 61 for row in scores[:20])


def test_a_row_without_history_gets_scores_too():
    batch = last_events(SMALL, SMALL.events())
    empty = batch.history._replace(
        items=torch.zeros(1, 1, dtype=torch.int64), times=torch.zeros(1, 1), lengths=torch.zeros(1, dtype=torch.int64)
    )
    for scores in (SMALL.optimal_scores(empty), SMALL.time_blind_scores(empty)):
        assert scores[0, 1:].sum().item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"num_users": 0}, "num_users"),
        ({"min_length": 2}, "min_length"),
        ({"min_length": 30, "max_length": 20}, "min_length"),
        ({"num_items": 39}, "num_items"),
        ({"companions": 0}, "companions"),
        ({"noise": 0.0}, "noise"),
        ({"pause_share": 1.5}, "pause_share"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, key):
    with pytest.raises(ValueError, match=key):
        Marketplace(**settings)
