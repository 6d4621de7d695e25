"""Stores interactions on disk: three memory-mapped arrays, whose pages are shared by all processes of a node.

A store is a folder. The events of user row `u` (from 0) are `items[offsets[u]:offsets[u + 1]]`, oldest first. Items
count from 1; 0 is padding. A store is written to a temporary folder and renamed, so a folder with the final name is
complete. A store whose events have features has two further arrays and their categories. meta.json has the CRC-32 of
every other file, see `find_corrupt_file`, and a CRC-32 of its own entries.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventColumns
from engine.io.file_hash import crc32_file
from engine.io.json_checksum import CHECKSUM, has_wrong_checksum

VERSION = 3
DTYPES: dict[str, np.dtype[np.integer]] = {
    "offsets": np.dtype(np.int64),
    "items": np.dtype(np.int32),
    "times": np.dtype(np.int64),
}
FEATURE_DTYPES: dict[str, np.dtype[Any]] = {
    "event_codes": np.dtype(np.int32),
    "event_numbers": np.dtype(np.float64),
}
"""Arrays of a store whose events have features: [N, columns of categories] and [N, columns of numbers]."""


class StoreError(ValueError):
    """A folder that is not a complete store. The message states what was found and what to do."""


class InteractionStore:
    """U users, I items and N interactions in a folder.

    Attributes:
        offsets: [U + 1] int64, first event of each user; every user has at least one event.
        items: [N] int32, from 1 to `num_items`.
        times: [N] int64, seconds; non-decreasing within a user.
        has_times: whether the source has times. Otherwise all times are 0, and the events are in the source's order.
        features: features of the events, or None; event_categories.json has the categories of each column.
        source: provenance of the data, the `source` argument of `write_store`.
        checksums: CRC-32 of each file, by its name; empty for a store in memory.
    """

    def __init__(self, root: Path, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.root = root
        self.num_users: int = meta["num_users"]
        self.num_items: int = meta["num_items"]
        self.num_interactions: int = meta["num_interactions"]
        self.has_times: bool = meta.get("has_times", True)
        self.source: dict[str, Any] = meta["source"]
        self.checksums: Mapping[str, int] = meta.get("crc32", {})
        self.offsets, self.items, self.times = arrays["offsets"], arrays["items"], arrays["times"]
        self.features: EventColumns | None = None
        if "event_features" in meta:
            categories = self._texts("event_categories", arrays["event_codes"].shape[1])
            self.features = EventColumns(arrays["event_codes"], arrays["event_numbers"], categories)

    def __reduce__(self) -> tuple[Any, ...]:
        # A spawned worker opens the files itself instead of receiving a copy of all arrays.
        return InteractionStore.open, (self.root,)

    @property
    def summary(self) -> str:
        """Numbers of users, items and interactions."""
        order = "" if self.has_times else " without times, in the order of the file"
        return f"{self.num_users:,} users, {self.num_items:,} items, {self.num_interactions:,} interactions{order}"

    @cached_property
    def user_ids(self) -> list[str]:
        """[U] ids of the users in the source."""
        return self._texts("user_ids", self.num_users)

    @cached_property
    def item_ids(self) -> list[str]:
        """[I] ids of the items in the source: `item_ids[i - 1]` belongs to item `i`."""
        return self._texts("item_ids", self.num_items)

    @cached_property
    def titles(self) -> list[str] | None:
        """[I] titles: `titles[i - 1]` belongs to item `i`. None if the source has no titles."""
        return self._texts("titles", self.num_items) if (self.root / "titles.json").is_file() else None

    @classmethod
    def open(cls, root: Path) -> "InteractionStore":
        """Open a store; only the metadata is read.

        Raises:
            FileNotFoundError: the folder is not a store.
            StoreError: the version differs, or files are inconsistent with the metadata.
        """
        root = Path(root)
        if not (root / "meta.json").is_file():
            raise FileNotFoundError(f"{root}: not an interaction store (no meta.json); `prepare` makes one")
        meta = _read_json(root / "meta.json")
        if not isinstance(meta, dict) or meta.get("version") != VERSION:
            found = meta.get("version") if isinstance(meta, dict) else meta
            raise StoreError(f"{root / 'meta.json'}: found version {found!r}, expected {VERSION}; delete the folder")
        missing = {"num_users", "num_items", "num_interactions", "source", "crc32", CHECKSUM} - meta.keys()
        if missing:
            raise StoreError(f"{root / 'meta.json'}: keys missing: {sorted(missing)}; delete the folder")
        if has_wrong_checksum(meta):
            raise StoreError(f"{root / 'meta.json'}: a value has changed since it was written; delete the folder")
        # Another shape is refused here. Only `find_corrupt_file`, which reads all files, detects a changed value.
        sizes = {"offsets": meta["num_users"] + 1, "items": meta["num_interactions"], "times": meta["num_interactions"]}
        arrays = {name: _open_array(root / f"{name}.npy", DTYPES[name], (size,)) for name, size in sizes.items()}
        if "event_features" in meta:
            for (name, dtype), columns in zip(FEATURE_DTYPES.items(), meta["event_features"], strict=True):
                shape = (meta["num_interactions"], columns)
                arrays[name] = _open_array(root / f"{name}.npy", dtype, shape)
        return cls(root, meta, arrays)

    def find_corrupt_file(self) -> str | None:
        """Return the name of the first file whose content has changed since it was written, or None. Reads all files.

        Raises:
            OSError: a file cannot be read.
        """
        for name, expected in self.checksums.items():
            if not (self.root / name).is_file() or crc32_file(self.root / name) != expected:
                return name
        return None

    def _texts(self, name: str, size: int) -> list[Any]:
        texts = _read_json(self.root / f"{name}.json")
        if not isinstance(texts, list) or len(texts) != size:
            found = f"{len(texts)} entries" if isinstance(texts, list) else type(texts).__name__
            raise StoreError(f"{self.root / f'{name}.json'}: found {found}, expected {size}; delete the folder")
        return texts


def _open_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if not path.is_file():
        raise StoreError(f"{path}: the file is missing; delete the folder to rebuild the store")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"{path}: not a complete array ({error}); delete the folder") from error
    if array.dtype != dtype or array.shape != shape:
        raise StoreError(f"{path}: found {array.dtype} {array.shape}, expected {dtype} {shape}; delete the folder")
    return array


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); delete the folder to rebuild the store") from error
