"""Tests the converted interactions on disk: conversion, opening, concurrent writers, and corrupt stores."""

import json
import os
import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.filters import Filters
from datamodules.recommender.reading.interactions import Interactions
from datamodules.recommender.reading.sequence_conversion import to_sequences
from datamodules.recommender.store.interaction_store import InteractionStore, StoreError
from datamodules.recommender.store.prepare import prepare_store
from datamodules.recommender.store.store_writer import write_store

REAL_DATA = Path(__file__).resolve().parents[4] / "../shared/data"

WHOLE = {
    "offsets": np.array([0, 2, 3]),
    "items": np.array([1, 2, 1]),
    "times": np.array([5, 5, 3]),
    "user_ids": ["anna", "ben\nor so"],
    "item_ids": ["x", "y"],
}


def write_rows(path: Path, rows: list[tuple[object, object, object]]) -> Path:
    path.write_text("user_id,item_id,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    return path


def reference_sequences(rows: list[tuple[str, str, int]], min_item: int, min_user: int) -> dict[str, list]:
    """The rule of conversion.py in plain Python."""
    in_file = list(dict.fromkeys(user for user, _, _ in rows))
    count = Counter(item for _, item, _ in rows)
    rows = [row for row in rows if count[row[1]] >= min_item]
    count = Counter(user for user, _, _ in rows)
    sequences: dict[str, list] = {}
    for user, item, time in rows:
        if count[user] >= min_user:
            sequences.setdefault(user, []).append((item, time))
    kept = [user for user in in_file if user in sequences]
    return {user: sorted(sequences[user], key=lambda event: event[1]) for user in kept}


row = st.tuples(st.sampled_from("abcd"), st.sampled_from("uvwxyz"), st.integers(0, 5))


@given(rows=st.lists(row, min_size=1, max_size=60), min_item=st.integers(1, 4), min_user=st.integers(1, 4))
def test_conversion_equals_the_rule_in_plain_python(
    rows: list[tuple[str, str, int]], min_item: int, min_user: int
) -> None:
    expected = reference_sequences(rows, min_item, min_user)
    user_ids, item_ids = (list(dict.fromkeys(row[column] for row in rows)) for column in (0, 1))
    interactions = Interactions(
        np.array([user_ids.index(row[0]) for row in rows], np.int32),
        np.array([item_ids.index(row[1]) for row in rows], np.int32),
        np.array([row[2] for row in rows], np.int64),
        user_ids,
        item_ids,
    )
    if not expected:
        with pytest.raises(InteractionError, match="nothing is left"):
            to_sequences(interactions, Filters(min_item, min_user))
        return
    actual, _ = to_sequences(interactions, Filters(min_item, min_user))
    assert actual.user_ids == list(expected)
    for index, user in enumerate(actual.user_ids):
        part = slice(actual.offsets[index], actual.offsets[index + 1])
        items = [actual.item_ids[item - 1] for item in actual.items[part]]
        assert list(zip(items, actual.times[part].tolist(), strict=True)) == expected[user]
    # Numbered by first appearance, without gaps.
    assert list(dict.fromkeys(actual.items.tolist())) == list(range(1, 1 + len(actual.item_ids)))


def test_a_written_store_opens_with_the_same_content(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", **WHOLE, titles=["The X", "Ü"], source={"format": "test"})
    assert (store.num_users, store.num_items, store.num_interactions) == (2, 2, 3)
    assert isinstance(store.items, np.memmap)
    assert store.offsets.dtype == store.times.dtype == np.int64
    assert store.items.dtype == np.int32
    assert store.items.tolist() == [1, 2, 1]
    assert list(store.user_ids) == WHOLE["user_ids"]
    assert list(store.titles) == ["The X", "Ü"]
    assert store.source == {"format": "test"}
    assert [path.name for path in tmp_path.iterdir()] == ["store"], "nothing is left beside it"


def test_titles_are_none_without_a_side_file(tmp_path: Path) -> None:
    assert write_store(tmp_path / "store", **WHOLE).titles is None


def test_a_pickled_store_is_opened_anew(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", **WHOLE)
    data = pickle.dumps(store)
    assert len(data) < 500
    assert isinstance(pickle.loads(data).items, np.memmap)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 2])}, "expected 3 offsets"),
        ({"offsets": np.array([0, 3, 3])}, "user row 1 has no event"),
        ({"items": np.array([1, 2, 3])}, "items from 1 to 3, expected 1 to 2"),
        ({"items": np.array([0, 2, 1])}, "items from 0 to 2"),
        ({"times": np.array([5, 4, 3])}, "event 1 is older"),
        ({"titles": ["one"]}, "1 titles for 2 items"),
        ({"items": np.array([], int), "times": np.array([], int)}, "at least one"),
    ],
)
def test_write_refuses_arrays_that_do_not_fit(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_store(tmp_path / "store", **(WHOLE | change))
    assert list(tmp_path.iterdir()) == []


def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space"):
        write_store(tmp_path / "store", **WHOLE)
    assert list(tmp_path.iterdir()) == []


def test_two_writers_end_with_one_store(tmp_path: Path) -> None:
    barrier = threading.Barrier(4, timeout=30)

    def write(_: int) -> InteractionStore:
        barrier.wait()
        return write_store(tmp_path / "store", **WHOLE)

    with ThreadPoolExecutor(4) as threads:
        stores = list(threads.map(write, range(4), timeout=30))
    assert len(stores) == 4
    assert all(store.items.tolist() == [1, 2, 1] for store in stores)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_write_does_not_replace_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "notes").write_text("mine")
    with pytest.raises(StoreError, match="exists and is not a store"):
        write_store(tmp_path / "store", **WHOLE)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_open_reports_what_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not an interaction store"):
        InteractionStore.open(tmp_path / "nowhere")
    root = write_store(tmp_path / "store", **WHOLE).root
    content = (root / "times.npy").read_bytes()
    (root / "times.npy").write_bytes(content[:-8])
    with pytest.raises(StoreError, match=r"times\.npy: not a complete array"):
        InteractionStore.open(root)
    np.save(root / "times.npy", np.zeros(3, np.int32))
    with pytest.raises(StoreError, match=r"found int32 \(3,\), expected int64 \(3,\)"):
        InteractionStore.open(root)
    (root / "times.npy").unlink()
    with pytest.raises(StoreError, match="missing"):
        InteractionStore.open(root)
    (root / "times.npy").write_bytes(content)
    (root / "user_ids.json").write_text('["one"]')
    with pytest.raises(StoreError, match="found 1 entries, expected 2"):
        _ = InteractionStore.open(root).user_ids
    (root / "meta.json").write_text('{"version": 99}')
    with pytest.raises(StoreError, match="found version 99, expected"):
        InteractionStore.open(root)
    (root / "meta.json").write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        InteractionStore.open(root)


def test_prepare_converts_once_and_again_after_a_change(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "events.csv", [("b", "x", 9), ("a", "x", 2), ("b", "y", 1)])
    store = prepare_store(source, min_item_interactions=1)
    assert store.root.parent == tmp_path / ".lockstep"
    assert list(store.user_ids) == ["b", "a"], "users by first appearance in the file"
    assert list(store.item_ids) == ["y", "x"], "items by first appearance in the users' order of time"
    assert store.items.tolist() == [1, 2, 2]
    made = (store.root / "meta.json").stat()
    assert prepare_store(source, min_item_interactions=1).root == store.root
    assert (store.root / "meta.json").stat().st_ino == made.st_ino
    assert prepare_store(source, min_item_interactions=2).num_items == 1
    os.utime(source, ns=(1, 1))
    assert prepare_store(source, min_item_interactions=1).root == store.root, "another time is no change"
    write_rows(source, [("b", "x", 9), ("a", "x", 2), ("b", "z", 1)])
    os.utime(source, ns=(1, 1))
    assert prepare_store(source, min_item_interactions=1).item_ids == ["z", "x"]


def test_prepare_in_a_given_cache_and_beside_read_only_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data_set"
    folder.mkdir()
    source = write_rows(folder / "events.csv", [("a", "x", 1), ("a", "y", 2)])
    assert prepare_store(source, min_item_interactions=1, cache=tmp_path / "cache").root.parent == tmp_path / "cache"
    assert not (folder / ".lockstep").exists()
    monkeypatch.chdir(tmp_path)
    folder.chmod(0o555)
    assert prepare_store(folder, min_item_interactions=1).root.parent == Path("data/cache")
    assert not (folder / ".lockstep").exists(), "root must not write to a read-only folder either"
    folder.chmod(0o755)
    (folder / ".lockstep").write_text("a file where the folder would be: nothing can be written there")
    assert prepare_store(folder, min_item_interactions=1, min_user_interactions=2).root.parent == Path("data/cache")


def test_nothing_left_names_the_filters(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "events.csv", [("a", "x", 1), ("a", "y", 2)])
    with pytest.raises(InteractionError, match=r"nothing is left of 2 .* min_item_interactions=5"):
        prepare_store(source)
    assert [path for path in (tmp_path / ".lockstep").iterdir() if path.is_dir()] == []


def test_ml_1m_is_the_canonical_file_of_the_papers(tmp_path: Path) -> None:
    folder = REAL_DATA / "ml-1m"
    if not (folder / "canonical_sasrec_order.txt").is_file():
        pytest.skip(f"no MovieLens 1M at {folder}")
    store = prepare_store(folder, cache=tmp_path)
    assert (store.num_users, store.num_items, store.num_interactions) == (6040, 3416, 999_611)
    canonical = np.loadtxt(folder / "canonical_sasrec_order.txt", np.int64)
    users = dict(np.loadtxt(folder / "canonical_users.txt", np.int64).tolist())
    items = dict(np.loadtxt(folder / "canonical_items.txt", np.int64).tolist())
    rows = {int(user): row for row, user in enumerate(store.user_ids)}
    original = np.array([0, *map(int, store.item_ids)])
    stops = np.flatnonzero(np.diff(canonical[:, 0], append=-1)) + 1
    for start, stop in zip([0, *stops[:-1]], stops, strict=True):
        row = rows[users[int(canonical[start, 0])]]
        found = original[store.items[store.offsets[row] : store.offsets[row + 1]]]
        assert found.tolist() == [items[item] for item in canonical[start:stop, 1].tolist()]
    assert store.titles[store.item_ids.index("1")] == "Toy Story (1995)"


def test_ml_100k_as_recbole_keeps_it(tmp_path: Path) -> None:
    source = REAL_DATA / "ml-100k" / "ml-100k.inter"
    if not source.is_file():
        pytest.skip(f"no MovieLens 100K at {source}")
    everything = prepare_store(source, min_item_interactions=1, cache=tmp_path)
    assert (everything.num_users, everything.num_items, everything.num_interactions) == (943, 1682, 100_000)
    filtered = prepare_store(source.parent, cache=tmp_path)
    assert (filtered.num_users, filtered.num_items, filtered.num_interactions) == (943, 1349, 99_287)
