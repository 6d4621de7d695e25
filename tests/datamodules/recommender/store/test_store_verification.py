"""Tests that a store with a flipped bit is never read by a training."""

import errno
import json
import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.sampled_candidates import sampled_candidates, stored_candidates
from datamodules.recommender.sources.synthetic_marketplace import Marketplace
from datamodules.recommender.store.interaction_store import InteractionStore, StoreError
from datamodules.recommender.store.prepare import prepare_store
from datamodules.recommender.store.store_writer import write_store

FILES = ("items.npy", "offsets.npy", "times.npy", "user_ids.json", "item_ids.json", "titles.json")
CONTENT = {
    "offsets": np.array([0, 2, 5]),
    "items": np.array([1, 2, 1, 2, 3]),
    "times": np.array([5, 6, 3, 3, 9]),
    "user_ids": ["anna", "ben"],
    "item_ids": ["x", "y", "z"],
    "titles": ["The X", "The Y", "The Z"],
}


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def another_item(root: Path) -> None:
    """Replace an item by another one of the data set, by one bit."""
    items = np.load(root / "items.npy")
    flip(root / "items.npy", 8 * ((root / "items.npy").stat().st_size - items.nbytes))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "events.csv"
    rows = [(user, item, 10 * user + item) for user in range(4) for item in range(6)]
    path.write_text("user_id,item_id,timestamp\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    return path


@given(data=st.data())
def test_a_flipped_bit_is_found_in_each_file(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.getbasetemp() / "flipped"
    if not root.is_dir():
        write_store(root, **CONTENT)
    store = InteractionStore.open(root)
    assert store.find_corrupt_file() is None
    name = data.draw(st.sampled_from(FILES))
    bit = data.draw(st.integers(0, 8 * (root / name).stat().st_size - 1))
    flip(root / name, bit)
    assert store.find_corrupt_file() == name
    flip(root / name, bit)


def test_a_corrupt_store_is_replaced_and_the_file_named(
    source: Path, messages: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockstep")
    store = prepare_store(source, verify=True, min_item_interactions=1)
    before = store.items.tolist()
    prepare_store(source, verify=True, min_item_interactions=1)
    assert "checksums verified" in messages[-1]
    another_item(store.root)
    assert InteractionStore.open(store.root).items.tolist() != before, "the bit gives a valid item"
    assert prepare_store(source, verify=True, min_item_interactions=1).items.tolist() == before
    assert f"{store.root / 'items.npy'} is corrupt" in messages[-1]
    assert InteractionStore.open(store.root).find_corrupt_file() is None
    assert [path.name for path in store.root.parent.iterdir() if path.name.endswith(".new")] == []


def truncate(root: Path) -> None:
    content = (root / "items.npy").read_bytes()
    (root / "items.npy").write_bytes(content[: len(content) // 2])


def remove_times(root: Path) -> None:
    (root / "times.npy").unlink()


def cut_meta(root: Path) -> None:
    (root / "meta.json").write_text((root / "meta.json").read_text()[:100])


def edit_meta(root: Path) -> None:
    """Another number of items: all arrays and their checksums stay right."""
    meta = json.loads((root / "meta.json").read_text())
    (root / "meta.json").write_text(json.dumps(meta | {"num_items": meta["num_items"] + 1}))


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (truncate, "items.npy: not a complete array"),
        (remove_times, "times.npy: the file is missing"),
        (cut_meta, "meta.json: cannot be read"),
        (edit_meta, "meta.json: a value has changed since it was written"),
    ],
)
def test_a_store_that_is_not_whole_is_converted_again(
    source: Path, messages: list[str], corrupt: Callable[[Path], None], message: str
) -> None:
    store = prepare_store(source, min_item_interactions=1)
    before = store.items.tolist()
    corrupt(store.root)
    with pytest.raises(StoreError, match=f"{message}.*; delete the folder"):
        InteractionStore.open(store.root)
    again = prepare_store(source, verify=True, min_item_interactions=1)
    assert (again.root, again.items.tolist(), again.num_items) == (store.root, before, 6)
    assert message in messages[-1]
    assert messages[-1].endswith("; converting the source again")
    assert again.find_corrupt_file() is None


def test_processes_that_find_a_corrupt_store_at_once_end_with_one_whole_store(source: Path) -> None:
    store = prepare_store(source, min_item_interactions=1)
    before = store.items.tolist()
    another_item(store.root)
    barrier = threading.Barrier(4, timeout=30)

    def prepare(_: int) -> list[int]:
        barrier.wait()
        return prepare_store(source, verify=True, min_item_interactions=1).items.tolist()

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(prepare, range(4), timeout=30)) == [before] * 4


def test_a_corrupt_store_that_cannot_be_replaced_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = prepare_store(source, min_item_interactions=1)
    another_item(store.root)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=r"a file is corrupt, and .* cannot be replaced .*Permission denied.* delete"):
        prepare_store(source, verify=True, min_item_interactions=1)


def test_a_start_replaces_a_corrupt_marketplace(tmp_path: Path) -> None:
    small = Marketplace(num_users=50, num_items=200)
    data = InteractionSequences("synthetic", root=str(tmp_path), marketplace=small, batch_size=8)
    data.prepare_data()
    before = data.events.items.tolist()
    another_item(data.events.root)
    again = InteractionSequences("synthetic", root=str(tmp_path), marketplace=small, batch_size=8)
    again.prepare_data()
    assert again.events.items.tolist() == before


def test_corrupt_candidates_are_drawn_again(source: Path) -> None:
    def prepared() -> InteractionSequences:
        data = InteractionSequences(root=str(source), min_item_interactions=1, sampled_100=True, batch_size=2)
        data.prepare_data()
        return data

    lines = source.read_text().splitlines()
    source.write_text("\n".join([*lines, *(f"9,extra-{item},{item}" for item in range(300))]) + "\n")
    data = prepared()
    right = sampled_candidates(data.events, seed=0)
    path = data.events.root / "sampled_100.npy"
    assert np.array_equal(np.load(path), right)
    found = np.load(path)
    for value in range(1, data.events.num_items):  # another item that the user never met
        if value not in found[0] and value not in data.events.items[: data.events.offsets[1]]:
            found[0, 0] = value
            break
    np.save(path, found)
    assert np.array_equal(stored_candidates(path, data.events), right), "a process that cannot write it draws it"
    assert np.array_equal(np.load(prepared().events.root / "sampled_100.npy"), right)
    shutil.rmtree(data.events.root)
    assert np.array_equal(np.load(prepared().events.root / "sampled_100.npy"), right)


def test_a_file_system_without_locks_is_no_failure(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre without `flock` and NFS without a lock service refuse to lock; a conversion needs no lock."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    store = prepare_store(source, min_item_interactions=1)
    before = store.items.tolist()
    another_item(store.root)
    assert prepare_store(source, verify=True, min_item_interactions=1).items.tolist() == before
