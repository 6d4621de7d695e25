"""Writes an interaction store: the content is validated, flushed, and renamed to its final path."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.store.interaction_store import DTYPES, VERSION, InteractionStore, StoreError
from engine.io.atomic_file import flush_folder, flush_tree
from engine.io.file_hash import crc32_file
from engine.io.json_checksum import with_checksum


def write_store(
    root: Path,
    *,
    offsets: NDArray[np.integer],
    items: NDArray[np.integer],
    times: NDArray[np.integer],
    user_ids: Sequence[str],
    item_ids: Sequence[str],
    titles: Sequence[str] | None = None,
    has_times: bool = True,
    source: dict[str, Any] | None = None,
) -> InteractionStore:
    """Write a store and open it.

    Several processes may write the same store at once: the first to finish wins, the others open its result.

    Args:
        root: folder of the store.
        offsets: int64 [U + 1], see `InteractionStore`.
        items: int32 [N], from 1.
        times: int64 [N], in seconds.
        user_ids: [U] ids in the source.
        item_ids: [I] ids in the source.
        titles: [I], or None.
        has_times: False if the times are unknown and all 0.
        source: provenance of the data, stored in meta.json.

    Raises:
        ValueError: the arrays are inconsistent; nothing is written.
        StoreError: `root` exists and is not a store.
    """
    root = Path(root)
    arrays = {"offsets": offsets, "items": items, "times": times}
    _check(arrays, user_ids, item_ids, titles)
    texts = {"user_ids": user_ids, "item_ids": item_ids} | ({} if titles is None else {"titles": titles})
    meta = {
        "version": VERSION,
        "num_users": len(user_ids),
        "num_items": len(item_ids),
        "num_interactions": len(items),
        "has_times": has_times,
        "source": source or {},
    }
    root.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".partial", dir=root.parent))
    try:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", np.asarray(array, DTYPES[name]), allow_pickle=False)
        for name, value in texts.items():
            _write_json(temporary / f"{name}.json", list(value))
        checksums = {path.name: crc32_file(path) for path in sorted(temporary.iterdir())}
        _write_json(temporary / "meta.json", with_checksum(meta | {"crc32": checksums}))
        flush_tree(temporary)
        return _publish(temporary, root)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_json(path: Path, value: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def _check(
    arrays: dict[str, NDArray[np.integer]],
    user_ids: Sequence[str],
    item_ids: Sequence[str],
    titles: Sequence[str] | None,
) -> None:
    """Check that the arrays are consistent."""
    offsets, items, times = arrays["offsets"], arrays["items"], arrays["times"]
    if len(items) == 0:
        raise ValueError("a store needs at least one interaction")
    if len(offsets) != len(user_ids) + 1 or offsets[0] != 0 or offsets[-1] != len(items) or len(items) != len(times):
        raise ValueError(
            f"found {len(offsets)} offsets up to {offsets[-1]}, {len(items)} items, {len(times)} times; expected "
            f"{len(user_ids) + 1} offsets from 0 to the number of items, and a time for each item"
        )
    if np.any(np.diff(offsets) < 1):
        raise ValueError(f"user row {np.argmin(np.diff(offsets))} has no event; drop users without events")
    if items.min() < 1 or items.max() > len(item_ids):
        raise ValueError(f"found items from {items.min()} to {items.max()}, expected 1 to {len(item_ids)}")
    if titles is not None and len(titles) != len(item_ids):
        raise ValueError(f"found {len(titles)} titles for {len(item_ids)} items")
    decreasing = np.diff(times) < 0
    decreasing[np.asarray(offsets[1:-1]) - 1] = False  # the first event of a user has no predecessor
    if decreasing.any():
        event = np.argmax(decreasing) + 1
        raise ValueError(f"event {event} is older than the previous event of the same user; sort by time")


def _publish(temporary: Path, root: Path) -> InteractionStore:
    try:
        temporary.rename(root)
    except OSError as error:
        if not (root / "meta.json").is_file():
            raise StoreError(f"{root}: exists and is not a store ({error.strerror}); delete it") from error
        # Another process finished first with the same content.
    flush_folder(root.parent)
    return InteractionStore.open(root)
