"""Tests the sampled candidates of an evaluation: their choice, their file, and their batches."""

import numpy as np
import pytest

from datamodules.recommender.dataset import RankingDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.sampled_candidates import load_candidates, sampled_candidates, save_candidates
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest

OFFSETS = np.array([0, 4, 4, 10, 13])
ITEMS = np.array([1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 19, 18], np.int32)
EVENTS = EventArrays(OFFSETS, ITEMS, np.arange(13), 20)


def test_candidates_are_items_that_the_user_never_met():
    candidates = sampled_candidates(EVENTS, seed=1)
    assert candidates.shape == (4, 100)
    for user in range(4):
        met = set(ITEMS[OFFSETS[user] : OFFSETS[user + 1]].tolist())
        assert set(candidates[user].tolist()) <= set(range(1, 21)) - met
    assert set(candidates[1].tolist()) == set(range(1, 21))  # 100 draws miss one of 20 items in 1 of 8 seeds; not in 1


def test_candidates_depend_on_seed_and_user_alone():
    candidates = sampled_candidates(EVENTS, seed=1)
    assert np.array_equal(candidates, sampled_candidates(EVENTS, seed=1, chunk=1))
    alone = EVENTS._replace(offsets=OFFSETS[:3], items=ITEMS[:10], times=EVENTS.times[:10])
    assert np.array_equal(candidates[:2], sampled_candidates(alone, seed=1)[:2])
    assert not np.array_equal(candidates, sampled_candidates(EVENTS, seed=2))


def test_a_user_who_has_every_item_is_named():
    events = EventArrays(np.array([0, 1, 4]), np.array([1, 1, 2, 3], np.int32), np.arange(4), 3)
    with pytest.raises(ValueError, match="user row 1 has all items"):
        sampled_candidates(events, seed=1)


def test_candidates_come_back_from_the_file_and_nothing_else_is_left(tmp_path):
    candidates = sampled_candidates(EVENTS, seed=1)
    save_candidates(tmp_path / "candidates.npy", candidates)
    assert np.array_equal(load_candidates(tmp_path / "candidates.npy", EVENTS), candidates)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["candidates.crc32", "candidates.npy"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.ones((3, 100), np.int32), r"found int32 \[3, 100\], expected int32 \[4, candidates\]"),
        (np.ones((4, 100), np.int64), "found int64"),
        (np.full((4, 100), 21, np.int32), "found items 21 to 21, expected 1 to 20"),
        (np.full((4, 100), 19, np.int32), "user row 3 has a candidate of"),
        (np.array([{}]), "not a candidate list"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, content, message):
    np.save(tmp_path / "candidates.npy", content)
    with pytest.raises(ValueError, match=message):
        load_candidates(tmp_path / "candidates.npy", EVENTS)


@pytest.mark.parametrize("size", [0, 5, 130, 1_000])
def test_a_broken_file_is_refused(tmp_path, size):
    path = tmp_path / "candidates.npy"
    save_candidates(path, sampled_candidates(EVENTS, seed=1))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"candidates\.npy: not a candidate list"):
        load_candidates(path, EVENTS)


def test_a_ranking_batch_carries_its_users_candidates(tmp_path):
    candidates = sampled_candidates(EVENTS, seed=1)
    save_candidates(tmp_path / "candidates.npy", candidates)
    examples = (np.array([0, 2, 3]), np.array([3, 9, 12]))
    data = RankingDataset(
        EVENTS,
        examples,
        max_length=5,
        time_scale=np.ones(4, np.int64),
        candidates=load_candidates(tmp_path / "candidates.npy", EVENTS),
    )
    batch = data[MicroBatchRequest(0, np.array([2, PADDING_INDEX, 0]))]
    assert batch.candidates.tolist() == [candidates[3].tolist(), [0] * 100, candidates[0].tolist()]
