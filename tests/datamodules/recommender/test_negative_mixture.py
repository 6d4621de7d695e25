"""Compares negatives by popularity and of the batch with plain draws and expected counts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions, check_negative_options
from datamodules.recommender.negatives.popularity_negatives import PopularItems, target_counts
from datamodules.recommender.negatives.uniform_negatives import InteractedItems
from engine.data.samplers import MicroBatchRequest, TrainSampler
from engine.determinism.stateless_rng import hash_uniform

V = 12
LENGTHS = [5, 2, 9, 3, 14, 7, 4, 6]


def events_of(lengths, seed=0, num_items=V):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    items = (1 + np.random.default_rng(seed).integers(0, 20, offsets[-1]) // 2).astype(np.int32)
    return EventArrays(offsets, items, np.arange(offsets[-1]), num_items)


EVENTS = events_of(LENGTHS)


def train_set(max_length=6, seed=7, windows="last", **options):
    users = np.arange(len(LENGTHS))
    options = NegativeOptions(**options)
    scale = np.ones(len(users), np.int64)
    return TrainDataset(
        EVENTS,
        (users, EVENTS.offsets[1:]),
        max_length=max_length,
        time_scale=scale,
        seed=seed,
        windows=windows,
        negatives=options,
    )


def everyone(epoch=0):
    whole = np.arange(len(LENGTHS))
    return MicroBatchRequest(epoch, whole, 0, whole)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=4, max_size=9).filter(any),
    st.lists(st.lists(st.integers(1, 40), max_size=6), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 0.75, 1.0]),
)
def test_a_draw_by_popularity_equals_a_walk_along_the_weights(counts, rows, power):
    num_items = len(counts)
    rows = [[1 + item % num_items for item in row] for row in rows]
    ends = np.cumsum([len(row) for row in rows])
    items = np.array([item for row in rows for item in row], np.int32)
    events = EventArrays(np.concatenate([[0], ends]), items, np.arange(len(items)), num_items)
    held = InteractedItems(events, ends - [len(row) for row in rows], ends)
    popular = PopularItems(np.array([99, *counts]), power)
    assert popular.weights.tolist() == [0, *(round(1024 * count**power) if count else 0 for count in counts)]
    positions = np.arange(20)
    drawn = popular.draw_absent(held, 3, np.arange(len(rows))[:, None], positions)
    for number, row in enumerate(rows):
        absent = [item for item in range(1, num_items + 1) if item not in row and popular.weights[item]]
        absent = absent or [item for item in range(1, num_items + 1) if popular.weights[item]]
        line = np.repeat(absent, popular.weights[absent])
        points = (hash_uniform(3, number, positions) * len(line)).astype(int)
        assert drawn[number].tolist() == line[points].tolist()
        assert popular.free(held)[number] == len(line)
    assert held.contain(np.arange(num_items + 1)).tolist() == [[i in row for i in range(num_items + 1)] for row in rows]


@pytest.mark.parametrize("windows", ["last", "random"])
def test_targets_are_counted_in_the_windows_that_train(windows):
    max_length = 6 if windows == "last" else None
    expected = Counter()
    for start, end in zip(EVENTS.offsets[:-1], EVENTS.offsets[1:], strict=True):
        expected.update(EVENTS.items[start + 1 : end][-(max_length or end) :].tolist())
    counts = target_counts(EVENTS, np.arange(len(LENGTHS)), EVENTS.offsets[1:], max_length)
    assert counts.tolist() == [expected[item] for item in range(V + 1)]


@pytest.mark.parametrize("shared", [False, True])
def test_each_item_is_among_the_negatives_as_often_as_expected(shared):
    data = train_set(number=8, shared=shared, kind="mixed", popularity_share=0.4, batch_targets=5)
    counts, expected, epochs = np.zeros((len(LENGTHS), V + 1)), np.zeros((len(LENGTHS), V + 1)), 400
    for epoch in range(epochs):
        batch = data[everyone(epoch)]
        own, logs = batch.negatives[:, 0].numpy(), batch.sampled.log_negatives[:, 0].numpy()
        of_batch = np.broadcast_to(batch.sampled.batch_negatives.numpy(), (len(LENGTHS), 5))
        rows = np.arange(len(LENGTHS))[:, None]
        kept = np.isfinite(batch.sampled.log_batch_negatives.numpy())
        np.add.at(counts, (rows, own), 1)
        np.add.at(counts, (rows, of_batch), kept)
        expected[rows, own] = np.exp(logs)
        expected[np.broadcast_to(rows, kept.shape)[kept], of_batch[kept]] = np.exp(
            batch.sampled.log_batch_negatives.numpy()[kept]
        )
    drawn = expected > 0
    error = np.sqrt(expected[drawn] / epochs)  # of a Poisson number; draws without replacement have less
    assert (np.abs(counts / epochs - expected)[drawn] < 5 * error).all()
    assert not counts[~drawn].any()


def test_the_target_is_corrected_by_the_same_rule():
    data = train_set(number=8, kind="mixed", popularity_share=0.4, batch_targets=5)
    batch = data[everyone()]
    shares = target_counts(EVENTS, np.arange(len(LENGTHS)), EVENTS.offsets[1:], 6)
    weights = np.array([round(1024 * count**0.75) if count else 0 for count in shares])
    for row, (start, end) in enumerate(zip(EVENTS.offsets[:-1], EVENTS.offsets[1:], strict=True)):
        lacked = sorted(set(range(1, V + 1)) - set(EVENTS.items[start:end].tolist()))
        for target, log in zip(batch.targets[row].tolist(), batch.sampled.log_targets[row].tolist(), strict=True):
            wanted = 5 / len(lacked) + 3 * weights[target] / weights[lacked].sum() + 5 * shares[target] / shares.sum()
            assert log == pytest.approx(np.log(wanted) if target else 0, abs=1e-5)


def test_without_correction_only_items_of_the_row_are_excluded():
    options = {"number": 4, "kind": "mixed", "batch_targets": 6}
    corrected, plain = (train_set(**options, log_q=log_q)[everyone()] for log_q in (True, False))
    assert corrected.negatives.tolist() == plain.negatives.tolist()
    assert not plain.sampled.log_targets.any()
    assert not plain.sampled.log_negatives.any()
    infinite = plain.sampled.log_batch_negatives.isinf()
    assert infinite.any()
    assert not infinite.all()
    assert not plain.sampled.log_batch_negatives[~infinite].any()
    assert infinite.equal(corrected.sampled.log_batch_negatives.isinf())
    for row, (start, end) in enumerate(zip(EVENTS.offsets[:-1], EVENTS.offsets[1:], strict=True)):
        own = set(EVENTS.items[start:end].tolist())
        assert infinite[row].tolist() == [item in own for item in plain.sampled.batch_negatives.tolist()]


@pytest.mark.parametrize("windows", ["last", "random"])
def test_the_batch_negatives_do_not_depend_on_ranks_micro_batches_or_groups(windows):
    data = train_set(number=3, kind="mixed", batch_targets=4, windows=windows)
    groups = LengthGroups(data, 3)

    def of_batch(number, world_size, accumulation):
        found, rows = [], {}
        for rank in range(world_size):
            sampler = TrainSampler(
                len(data),
                4,
                seed=1,
                rank=rank,
                world_size=world_size,
                accumulation=accumulation,
                sample_costs=groups.sample_costs,
            )
            for request in sampler.requests_of(2, number, rank):
                for part in groups[request]:
                    found.append(part.sampled.batch_negatives.tolist())
                    for row, user in enumerate(part.users.tolist()):
                        length = int(part.history.lengths[row])
                        logs = part.sampled.log_negatives[row, :length].tolist()
                        shared = part.sampled.log_batch_negatives[row].tolist()
                        rows[user] = part.negatives[row, :length].tolist(), logs, shared
        rows.pop(-1, None)
        assert all(item == found[0] for item in found)
        return found[0], rows

    first, second = of_batch(0, 1, 1), of_batch(1, 1, 1)
    assert first[0] != second[0]
    for split in ((2, 1), (1, 4), (2, 2), (4, 1)):
        assert of_batch(0, *split) == first
        assert of_batch(1, *split) == second


def test_as_many_batch_negatives_as_targets_are_all_targets():
    targets = train_set()[everyone()].targets
    data = train_set(batch_targets=int((targets > 0).sum()))
    found = data[everyone(3)].sampled.batch_negatives
    assert Counter(found.tolist()) == Counter(targets[targets > 0].tolist())
    assert data[everyone()].negatives.shape == (len(LENGTHS), 1, 0)
    assert data[MicroBatchRequest(0, np.array([-1]))].sampled.batch_negatives.eq(0).all()


def test_uniform_negatives_have_no_corrections():
    assert train_set(number=2)[everyone()].sampled is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "mixed"}, "negatives mixed: found .*num_negatives 0"),
        ({"kind": "mixed", "number": 1, "popularity_share": 0.3}, "popularity_share 0.3 of .* rounds to 0 negatives"),
    ],
)
def test_a_mixture_without_negatives_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        check_negative_options(NegativeOptions(**options))
