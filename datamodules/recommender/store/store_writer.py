"""Writes an interaction store: the content is validated, flushed, and renamed to its final path."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventColumns
from datamodules.recommender.store.interaction_store import (
    DTYPES,
    FEATURE_DTYPES,
    VERSION,
    InteractionStore,
    StoreError,
)
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
    features: EventColumns | None = None,
    has_times: bool = True,
    source: dict[str, Any] | None = None,
) -> InteractionStore:
    """Write a store and open it.

    Args:
        root: folder of the store.
        offsets: int64 [U + 1], see `InteractionStore`.
        items: int32 [N], from 1.
        times: int64 [N], in seconds.
        user_ids: [U] ids in the source.
        item_ids: [I] ids in the source.
        titles: [I], or None.
        features: features of the N events, or None.
        has_times: False if the times are unknown and all 0.
        source: provenance of the data, stored in meta.json.

    Raises:
        ValueError: the arrays are inconsistent; nothing is written.
        StoreError: `root` exists and is not a store.
    """
    arrays = {"offsets": offsets, "items": items, "times": times}
    texts = {"user_ids": user_ids, "item_ids": item_ids} | ({} if titles is None else {"titles": titles})
    _check(arrays, user_ids, item_ids, titles)
    if features is not None:
        _check_features(features, len(items))
    with StoreDraft(root) as draft:
        for name, array in arrays.items():
            np.save(draft.folder / f"{name}.npy", np.asarray(array, DTYPES[name]), allow_pickle=False)
        for name, value in texts.items():
            write_texts(draft.folder / f"{name}.json", value)
        if features is not None:
            for (name, dtype), values in zip(FEATURE_DTYPES.items(), features[:2], strict=True):
                np.save(draft.folder / f"{name}.npy", np.asarray(values, dtype), allow_pickle=False)
            _write_json(draft.folder / "event_categories.json", features.categories)
        return draft.publish(
            len(user_ids), len(item_ids), len(items), has_times=has_times, source=source or {}, features=features
        )


class StoreDraft:
    """Temporary folder for the files of a store. It is removed unless it is published.

    Several processes may write the same store at once: the first to finish wins, the others open its result.

    Args:
        root: final folder of the store.
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(root)
        self._root.parent.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".partial", dir=root.parent))

    def __enter__(self) -> "StoreDraft":
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def publish(
        self,
        users: int,
        items: int,
        interactions: int,
        *,
        has_times: bool,
        source: Any,
        features: EventColumns | None = None,
    ) -> InteractionStore:
        """Write meta.json, flush all files, rename the folder to its final path, and open the store.

        Raises:
            StoreError: the final path exists and is not a store.
        """
        meta = {
            "version": VERSION,
            "num_users": users,
            "num_items": items,
            "num_interactions": interactions,
            "has_times": has_times,
            "source": source,
        }
        if features is not None:
            meta["event_features"] = [features.codes.shape[1], features.numbers.shape[1]]
        checksums = {path.name: crc32_file(path) for path in sorted(self.folder.iterdir())}
        _write_json(self.folder / "meta.json", with_checksum(meta | {"crc32": checksums}))
        # A rename may reach the disk before the content of the files, so they are flushed first.
        flush_tree(self.folder)
        try:
            self.folder.rename(self._root)
        except OSError as error:
            if not (self._root / "meta.json").is_file():
                raise StoreError(f"{self._root}: exists and is not a store ({error.strerror}); delete it") from error
            # Another process finished first, with the same content.
        flush_folder(self._root.parent)
        return InteractionStore.open(self._root)


def write_texts(path: Path, texts: Iterable[str]) -> int:
    """Write texts as a JSON list, in bounded memory; return their number."""
    number = 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, text in enumerate(texts, start=1):
            file.write((", " if number > 1 else "") + json.dumps(text, ensure_ascii=False))
        file.write("]")
    return number


def _write_json(path: Path, value: Any) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False)


def _check_features(features: EventColumns, events: int) -> None:
    """Check that there are features for all events, and that each code has a category."""
    codes, numbers, categories = features
    if not len(codes) == len(numbers) == events or codes.shape[1] != len(categories):
        raise ValueError(
            f"found features {codes.shape} and {numbers.shape} with {len(categories)} lists of categories, expected "
            f"those of {events} events, and a list for each column of categories"
        )
    for column, names in zip(codes.T, categories, strict=True):
        if column.min() < 0 or column.max() > len(names):
            raise ValueError(f"found categories from {column.min()} to {column.max()}, expected 0 to {len(names)}")


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
