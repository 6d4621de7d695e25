"""Interactions on disk: three arrays that are opened memory-mapped, so processes share their pages.

A store is a folder. The events of user row ``u`` (rows count from 0) are ``items[offsets[u]:offsets[u + 1]]``, oldest
first; items count from 1, 0 is left for padding. It is written once, beside its final place, and renamed: a folder that
has the name is whole.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.conversion import to_sequences
from datamodules.recommender.formats import Layout, detect
from datamodules.recommender.reading import read_interactions
from datamodules.recommender.titles import read_titles

VERSION = 1
_DTYPES = {"offsets": np.dtype(np.int64), "items": np.dtype(np.int32), "times": np.dtype(np.int64)}


_log = logging.getLogger("lockstep")


class StoreError(ValueError):
    """A folder that is no whole store; the message says what was found and what to do."""


class InteractionStore:
    """U users, I items and N interactions in a folder.

    Attributes:
        offsets: [U + 1] int64, where each user's events begin; every user has at least one.
        items: [N] int32, from 1 to ``num_items``.
        times: [N] int64, seconds; never decreasing within a user.
        source: what the store was made from, as it was given to ``write``.
    """

    def __init__(self, root: Path, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.root = root
        self.num_users: int = meta["num_users"]
        self.num_items: int = meta["num_items"]
        self.num_interactions: int = meta["num_interactions"]
        self.source: dict[str, Any] = meta["source"]
        self.offsets, self.items, self.times = arrays["offsets"], arrays["items"], arrays["times"]

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the files itself instead of receiving a copy of all arrays.
        return InteractionStore.open, (self.root,)

    @cached_property
    def user_ids(self) -> list[str]:
        """[U] the users' ids in the source."""
        return self._texts("user_ids", self.num_users)

    @cached_property
    def item_ids(self) -> list[str]:
        """[I] the items' ids in the source: ``item_ids[i - 1]`` belongs to item ``i``."""
        return self._texts("item_ids", self.num_items)

    @cached_property
    def titles(self) -> list[str] | None:
        """[I] ``titles[i - 1]`` belongs to item ``i``; None where the source has none."""
        return self._texts("titles", self.num_items) if (self.root / "titles.json").is_file() else None

    @classmethod
    def open(cls, root: Path) -> "InteractionStore":
        """Open a store; reads no more than its meta data.

        Raises:
            FileNotFoundError: no store there.
            StoreError: another version, or files that do not fit the meta data.
        """
        root = Path(root)
        if not (root / "meta.json").is_file():
            raise FileNotFoundError(f"{root}: not an interaction store (no meta.json); `prepare` makes one")
        meta = _read_json(root / "meta.json")
        if not isinstance(meta, dict) or meta.get("version") != VERSION:
            found = meta.get("version") if isinstance(meta, dict) else meta
            raise StoreError(f"{root / 'meta.json'}: found version {found!r}, expected {VERSION}; delete the folder")
        missing = {"num_users", "num_items", "num_interactions", "source"} - meta.keys()
        if missing:
            raise StoreError(f"{root / 'meta.json'}: keys missing: {sorted(missing)}; delete the folder")
        sizes = {"offsets": meta["num_users"] + 1, "items": meta["num_interactions"], "times": meta["num_interactions"]}
        return cls(root, meta, {name: _open_array(root / f"{name}.npy", name, size) for name, size in sizes.items()})

    @classmethod
    def write(
        cls,
        root: Path,
        *,
        offsets: NDArray[np.integer],
        items: NDArray[np.integer],
        times: NDArray[np.integer],
        user_ids: Sequence[str],
        item_ids: Sequence[str],
        titles: Sequence[str] | None = None,
        source: dict[str, Any] | None = None,
    ) -> "InteractionStore":
        """Write a store and open it.

        Safe when several processes write the same store: the first to finish wins, the others take its result.

        Args:
            offsets, items, times, user_ids, item_ids, titles: see the class.
            source: kept in meta.json, to tell people where the data came from.

        Raises:
            ValueError: the arrays do not fit together; nothing is written.
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
            "source": source or {},
        }
        root.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".partial", dir=root.parent))
        try:
            for name, array in arrays.items():
                with (beside / f"{name}.npy").open("wb") as file:
                    np.save(file, np.asarray(array, _DTYPES[name]), allow_pickle=False)
                    _to_disk(file)
            for name, value in (texts | {"meta": meta}).items():
                with (beside / f"{name}.json").open("w", encoding="utf-8") as file:
                    json.dump(value if name == "meta" else list(value), file, ensure_ascii=False)
                    _to_disk(file)
            _sync_folder(beside)
            beside.chmod(0o777 & ~_umask())  # mkdtemp's folders are for their owner alone; data are shared
            return _publish(beside, root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _texts(self, name: str, size: int) -> list[str]:
        texts = _read_json(self.root / f"{name}.json")
        if not isinstance(texts, list) or len(texts) != size:
            found = f"{len(texts)} entries" if isinstance(texts, list) else type(texts).__name__
            raise StoreError(f"{self.root / f'{name}.json'}: found {found}, expected {size}; delete the folder")
        return texts


def prepare_store(
    source: Path,
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    time_column: str | None = None,
    min_item_interactions: int = 5,
    min_user_interactions: int = 1,
    cache: Path | None = None,
) -> InteractionStore:
    """The store of a file or folder of interactions: converted the first time, opened from then on.

    The store's name depends on the source's files (name, size, time of change) and on the settings, so a changed source
    is converted again.

    Args:
        source: see ``formats.detect`` for what is recognised.
        user_column, item_column, time_column: columns of a table; by default well-known names are looked for.
        min_item_interactions, min_user_interactions: filters, see ``conversion``.
        cache: where stores are kept; by default ``.lockstep`` beside the data or, if it is read-only, ``data/cache``.

    Raises:
        FileNotFoundError: nothing at ``source``.
        InteractionError: the source cannot be read; the message names file, line, found and expected.
    """
    layout, settings, places = _planned(
        source, user_column, item_column, time_column, min_item_interactions, min_user_interactions, cache
    )
    for place in places:
        if (place / "meta.json").is_file():
            return InteractionStore.open(place)
    root = next((place for place in places[:-1] if _can_write(place.parent)), places[-1])
    _log.info("converting %s (%s) to %s", layout.path, layout.kind, root)
    return _convert(layout, root, min_item_interactions, min_user_interactions, settings)


def is_prepared(
    source: Path,
    *,
    user_column: str | None = None,
    item_column: str | None = None,
    time_column: str | None = None,
    min_item_interactions: int = 5,
    min_user_interactions: int = 1,
) -> bool:
    """Whether `prepare_store` with the same arguments would find its store; writes nothing. Raises as it does."""
    _, _, places = _planned(
        source, user_column, item_column, time_column, min_item_interactions, min_user_interactions, None
    )
    return any((place / "meta.json").is_file() for place in places)


def _planned(
    source: Path,
    user_column: str | None,
    item_column: str | None,
    time_column: str | None,
    min_items: int,
    min_users: int,
    cache: Path | None,
) -> tuple[Layout, dict[str, Any], list[Path]]:
    """What is there, what is to be made of it, and where that may be kept: the first place that can be written to."""
    layout = detect(Path(source), user_column=user_column, item_column=item_column, time_column=time_column)
    settings = {
        "version": VERSION,
        "format": layout.kind,
        "columns": [layout.user, layout.item, layout.time],
        "min_item_interactions": min_items,
        "min_user_interactions": min_users,
        "files": [_identity(path) for path in (layout.path, layout.titles) if path],
    }
    name = "interactions-" + hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    places = [Path(cache)] if cache else [layout.path.parent / ".lockstep", Path("data/cache")]
    return layout, settings, [place / name for place in places]


def _convert(layout: Layout, root: Path, min_items: int, min_users: int, settings: dict[str, Any]) -> InteractionStore:
    sequences = to_sequences(read_interactions(layout), min_items, min_users)
    titles = read_titles(layout.titles, layout.item) if layout.titles else {}
    return InteractionStore.write(
        root,
        **sequences._asdict(),
        # An item that the side file does not know is called by its id.
        titles=[titles.get(item, item) for item in sequences.item_ids] if titles else None,
        source=settings,
    )


def _identity(path: Path) -> list[Any]:
    status = path.stat()
    return [path.name, status.st_size, status.st_mtime_ns]


def _can_write(folder: Path) -> bool:
    if not folder.parent.stat().st_mode & 0o222:
        return False  # marked read-only: root could write there all the same, and should not
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _check(
    arrays: dict[str, NDArray[np.integer]],
    user_ids: Sequence[str],
    item_ids: Sequence[str],
    titles: Sequence[str] | None,
) -> None:
    offsets, items, times = arrays["offsets"], arrays["items"], arrays["times"]
    if len(items) == 0:
        raise ValueError("a store needs at least one interaction")
    if len(offsets) != len(user_ids) + 1 or offsets[0] != 0 or offsets[-1] != len(items) or len(items) != len(times):
        raise ValueError(
            f"found {len(offsets)} offsets up to {offsets[-1]}, {len(items)} items, {len(times)} times; expected "
            f"{len(user_ids) + 1} offsets from 0 to the number of items, and a time for each item"
        )
    if np.any(np.diff(offsets) < 1):
        raise ValueError(f"user row {np.argmin(np.diff(offsets))} has no event; leave users without events out")
    if items.min() < 1 or items.max() > len(item_ids):
        raise ValueError(f"found items from {items.min()} to {items.max()}, expected 1 to {len(item_ids)}")
    if titles is not None and len(titles) != len(item_ids):
        raise ValueError(f"found {len(titles)} titles for {len(item_ids)} items")
    back = np.diff(times) < 0
    back[np.asarray(offsets[1:-1]) - 1] = False  # from one user to the next time may go back
    if back.any():
        raise ValueError(f"event {np.argmax(back) + 1} is older than the one before it of the same user; sort by time")


def _publish(beside: Path, root: Path) -> InteractionStore:
    try:
        beside.rename(root)
    except OSError as error:
        if not (root / "meta.json").is_file():
            raise StoreError(f"{root}: cannot be put there ({error.strerror}); what is there is no store") from error
        # Another process finished first; both made the same.
    _sync_folder(root.parent)
    return InteractionStore.open(root)


def _open_array(path: Path, name: str, size: int) -> NDArray[Any]:
    if not path.is_file():
        raise StoreError(f"{path}: the file is missing; delete the folder, and the store is made again")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise StoreError(f"{path}: not a whole array ({error}); delete the folder") from error
    if array.dtype != _DTYPES[name] or array.shape != (size,):
        raise StoreError(
            f"{path}: found {array.dtype} {array.shape}, expected {_DTYPES[name]} ({size},); delete the folder"
        )
    return array


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({error}); delete the folder, and the store is made again") from error


def _to_disk(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
