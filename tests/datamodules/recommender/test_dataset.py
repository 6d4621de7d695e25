"""Tests batches for training and ranking, negatives and windows against loops over rows."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.dataset import RankingDataset, TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from datamodules.recommender.negatives.uniform_negatives import absent_items
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest

NUM_ITEMS = 30


def events_of(lengths, seed=0, num_items=NUM_ITEMS):
    random = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    items = random.integers(1, num_items + 1, offsets[-1]).astype(np.int32)
    times = [1_000 + np.cumsum(random.integers(0, 50, length)) for length in lengths]
    return EventArrays(offsets, items, np.concatenate([*times, []]).astype(np.int64), num_items)


EVENTS = events_of([5, 2, 19, 3, 40, 7])
EXAMPLES = (np.array([0, 2, 3, 4, 5]), EVENTS.offsets[[1, 3, 4, 5, 6]] - np.array([2, 2, 1, 2, 0]))
RANKING = (EXAMPLES[0][:4], EXAMPLES[1][:4])  # the last example has no event after it: nothing to hold out
SCALE = np.arange(10, 16)


def train_set(events=EVENTS, examples=EXAMPLES, max_length=8, **options):
    return TrainDataset(events, examples, max_length=max_length, time_scale=SCALE, seed=7, **options)


def draw(*indices, epoch=0):
    return MicroBatchRequest(epoch, np.array(indices))


def plain_row(values, length):
    """One row, its length, and the last event's value behind it."""
    return list(values) + [values[-1] if len(values) else 0] * (length - len(values))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(PADDING_INDEX, 4), min_size=1, max_size=6), st.integers(1, 45))
def test_train_batch_equals_a_loop_over_rows(indices, max_length):
    batch = train_set(max_length=max_length)[draw(*indices)]
    longest = 1
    rows = []
    for index in indices:
        begin, end = (EVENTS.offsets[EXAMPLES[0][index]], EXAMPLES[1][index]) if index != PADDING_INDEX else (0, 0)
        items, times = EVENTS.items[begin:end].tolist(), EVENTS.times[begin:end].tolist()
        rows.append((items[:-1][-max_length:], times[:-1][-max_length:], items[1:][-max_length:]))
        longest = max(longest, len(rows[-1][0]))
    for row, (index, (items, times, targets)) in enumerate(zip(indices, rows, strict=True)):
        padding = [0] * (longest - len(items))
        assert batch.history.items[row].tolist() == items + padding
        assert batch.history.times[row].tolist() == plain_row(times, longest)
        assert batch.targets[row].tolist() == targets + padding
        assert batch.history.request_time[row] == (
            0 if index == PADDING_INDEX else EVENTS.times[EXAMPLES[1][index] - 1]
        )
        assert batch.history.lengths[row] == len(items)
        assert batch.users[row] == (PADDING_INDEX if index == PADDING_INDEX else EXAMPLES[0][index])
        assert batch.history.time_scale[row] == (1 if index == PADDING_INDEX else SCALE[EXAMPLES[0][index]])
    assert batch.negatives.shape == (len(indices), 1, 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(PADDING_INDEX, 4), min_size=1, max_size=6), st.integers(1, 45))
def test_ranking_batch_equals_a_loop_over_rows(indices, max_length):
    users, ends = RANKING
    indices = [min(index, 3) for index in indices]
    batch = RankingDataset(EVENTS, RANKING, max_length=max_length, time_scale=SCALE)[draw(*indices)]
    for row, index in enumerate(indices):
        begin, end = (EVENTS.offsets[users[index]], ends[index]) if index != PADDING_INDEX else (0, 0)
        items, times = EVENTS.items[begin:end].tolist(), EVENTS.times[begin:end].tolist()
        target = 0 if index == PADDING_INDEX else EVENTS.items[end]
        length = batch.history.lengths[row]
        assert batch.history.items[row, :length].tolist() == items[-max_length:]
        assert not batch.history.items[row, length:].any()
        assert batch.history.times[row].tolist() == plain_row(times[-max_length:], batch.history.times.shape[1])
        assert batch.target[row] == target
        assert batch.history.request_time[row] == (0 if index == PADDING_INDEX else EVENTS.times[ends[index]])
        assert set(batch.seen[row].tolist()) - {0} == set(items) - {target}
        assert batch.users[row] == (PADDING_INDEX if index == PADDING_INDEX else users[index])
    assert batch.history.items.shape[1] == max(1, *batch.history.lengths.tolist(), 1)
    assert batch.candidates.shape == (len(indices), 0)


def test_a_batch_of_fillers_is_empty_and_still_a_batch():
    filler = train_set(negatives=NegativeOptions(2))[draw(PADDING_INDEX)]
    assert filler.history.lengths.tolist() == [0]
    assert filler.history.items.tolist() == filler.targets.tolist() == filler.history.times.tolist() == [[0]]
    assert filler.negatives.tolist() == [[[0, 0]]]
    ranking = RankingDataset(EVENTS, RANKING, max_length=3, time_scale=SCALE)[draw(PADDING_INDEX)]
    assert ranking.target.tolist() == [0]
    assert ranking.seen.tolist() == [[0]]


@pytest.mark.parametrize("shared", [False, True])
def test_negatives_do_not_depend_on_the_batch_or_on_the_cut(shared):
    data = train_set(max_length=100, negatives=NegativeOptions(3, shared))
    together = data[draw(0, 1, 2, 3, 4)]
    for index in range(5):
        alone = data[draw(PADDING_INDEX, index)]
        length = int(alone.history.lengths[1])
        width = 1 if shared else length
        assert alone.negatives[1, :width].tolist() == together.negatives[index, :width].tolist()
        cut = train_set(max_length=2, negatives=NegativeOptions(3, shared))[draw(index)]
        kept = slice(None) if shared else slice(max(length - 2, 0), length)
        assert cut.negatives[0].tolist() == alone.negatives[1][:width][kept].tolist()


@pytest.mark.parametrize("shared", [False, True])
def test_negatives_are_items_that_the_training_part_lacks(shared):
    data = train_set(max_length=4, negatives=NegativeOptions(50, shared))
    batch = data[draw(1, 3)]
    assert batch.negatives.shape == (2, 1 if shared else 4, 50)
    for row, index in enumerate([1, 3]):
        user, end = EXAMPLES[0][index], EXAMPLES[1][index]
        lacked = set(range(1, NUM_ITEMS + 1)) - set(EVENTS.items[EVENTS.offsets[user] : end].tolist())
        assert set(batch.negatives[row].flatten().tolist()) <= lacked
    assert not np.array_equal(batch.negatives, data[draw(1, 3, epoch=1)].negatives)
    if not shared:
        assert batch.negatives[0, 0].tolist() != batch.negatives[0, 1].tolist()


def test_negatives_are_zero_where_a_row_is_padded():
    batch = train_set(max_length=100, negatives=NegativeOptions(2))[draw(0, 3)]
    padded = np.arange(batch.targets.shape[1]) >= batch.history.lengths.numpy()[:, None]
    assert padded.any()
    assert np.array_equal((batch.negatives == 0).all(-1).numpy(), padded)


def test_absent_items_are_uniform():
    events = EventArrays(np.array([0, 4]), np.array([2, 2, 5, 9], np.int32), np.arange(4), 9)
    drawn = absent_items(events, np.array([0, 1]), np.array([4, 1]), np.array([[0], [1]]), np.arange(30_000))
    counts = Counter(drawn[0].tolist())
    assert set(counts) == {1, 3, 4, 6, 7, 8}
    assert max(abs(count - 5_000) for count in counts.values()) < 300  # 4.6 standard deviations
    assert set(drawn[1].tolist()) == set(range(1, 10))


def test_a_user_with_every_item_gets_any_negative():
    events = EventArrays(np.array([0, 3]), np.array([3, 1, 2], np.int32), np.arange(3), 3)
    drawn = absent_items(events, np.array([0]), np.array([3]), np.arange(100)[None])
    assert set(drawn.flatten().tolist()) == {1, 2, 3}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 3), st.integers(1, 20), st.data())
def test_time_scale_equals_a_loop_over_users(lengths, seed, chunk, data):
    events = events_of(lengths, seed)
    events.times[:] = events.times // 20 * 20  # zero gaps too
    train_end = events.offsets[:-1] + [data.draw(st.integers(0, length)) for length in lengths]
    expected = []
    for begin, end in zip(events.offsets[:-1], train_end, strict=True):
        gaps = np.diff(events.times[begin:end])
        expected.append(gaps[gaps > 0].min() if (gaps > 0).any() else 1)
    assert personal_time_scale(events, train_end, chunk).tolist() == expected


def test_lengths_are_those_of_the_rows():
    data = train_set(max_length=8)
    assert data.lengths.tolist() == data[draw(0, 1, 2, 3, 4)].history.lengths.tolist()


def test_a_row_in_which_nothing_follows_is_refused():
    with pytest.raises(ValueError, match=r"training example 1 \(user row 1\)"):
        train_set(examples=(np.array([0, 1]), EVENTS.offsets[:2] + np.array([4, 1])))


def test_candidates_of_another_data_set_are_refused():
    with pytest.raises(ValueError, match="3 candidate lists for 6 users"):
        RankingDataset(EVENTS, RANKING, max_length=3, time_scale=SCALE, candidates=np.ones((3, 100)))


def test_a_history_with_nothing_behind_it_is_refused():
    with pytest.raises(ValueError, match=r"ranking example 4 \(user row 5\)"):
        RankingDataset(EVENTS, EXAMPLES, max_length=3, time_scale=SCALE)


def test_prediction_uses_all_events_and_has_no_target():
    everyone = (np.arange(6), EVENTS.offsets[1:])
    data = RankingDataset(EVENTS, everyone, max_length=50, time_scale=SCALE, held_out=False)
    batch = data[draw(5, 0)]
    assert batch.target.tolist() == [0, 0]
    assert batch.history.lengths.tolist() == [7, 5]
    assert batch.history.items[0].tolist() == EVENTS.items[-7:].tolist()
    assert batch.history.request_time is None
    at = np.arange(9000, 9006)
    data = RankingDataset(EVENTS, everyone, max_length=50, time_scale=SCALE, held_out=False, request_times=at)
    assert data[draw(5, PADDING_INDEX, 0)].history.request_time.tolist() == [9005, 0, 9000]


def windows_of(epoch, *indices, max_length=8, seed=7):
    """{row: (first position, items, targets)} of random windows; events are numbered: an item is its position."""
    items = np.concatenate([np.arange(1, n + 1) for n in np.diff(EVENTS.offsets)])
    events = EVENTS._replace(items=items, num_items=60)
    rows = TrainDataset(
        events,
        EXAMPLES,
        max_length=max_length,
        time_scale=SCALE,
        seed=seed,
        windows="random",
        negatives=NegativeOptions(2),
    )
    batch = rows[draw(*indices, epoch=epoch)]
    found = {}
    for row, index in enumerate(indices):
        length = int(batch.history.lengths[row])
        items, targets = batch.history.items[row, :length], batch.targets[row, :length]
        assert torch.equal(targets, items + 1)
        assert not batch.targets[row, length:].any()
        times = events.times[events.offsets[EXAMPLES[0][index]] :]
        assert batch.history.times[row, :length].tolist() == times[items.numpy() - 1].tolist()
        assert batch.history.request_time[row] == times[int(targets[-1]) - 1]
        found[index] = (items.tolist(), batch.negatives[row, :length].tolist())
    return found


def test_random_windows_train_every_position_and_keep_short_rows_whole():
    positions = EXAMPLES[1] - EVENTS.offsets[EXAMPLES[0]] - 1
    trained, epochs = {index: Counter() for index in range(5)}, 400
    for epoch in range(epochs):
        for index, (items, _) in windows_of(epoch, 0, 1, 2, 3, 4).items():
            assert items == list(range(items[0], items[0] + min(8, positions[index])))
            trained[index].update(items)
    assert (positions > 8).sum() == 2
    for index, n in enumerate(positions):
        assert set(trained[index]) == set(range(1, n + 1))
        expected = epochs * min(1.0, 8 / (n + 7))
        assert min(trained[index].values()) > expected - 4 * (expected * (1 - expected / epochs)) ** 0.5 - 1e-9


def test_a_random_window_is_a_function_of_seed_epoch_and_sample():
    together = windows_of(3, 0, 1, 2, 3, 4)
    for index in (4, 3, 2, 1, 0):
        assert windows_of(3, index)[index] == together[index]
    longest = {windows_of(epoch, 3)[3][0][0] for epoch in range(30)}
    of_another_seed = [windows_of(epoch, 3, seed=8)[3][0] != windows_of(epoch, 3)[3][0] for epoch in range(30)]
    assert len(longest) > 8
    assert any(of_another_seed)
