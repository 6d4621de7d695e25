"""Converts interactions to a store once. The key is content and path of the source files, and the settings."""

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from typing_extensions import Unpack

from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.event_reader import choose_event_columns, read_event_columns
from datamodules.recommender.reading.errors import InteractionError, SourceChangedError
from datamodules.recommender.reading.file_formats import Layout, detect_layout, with_ratings
from datamodules.recommender.reading.filters import Filters
from datamodules.recommender.reading.interactions import read_interactions
from datamodules.recommender.reading.parquet_table import count_parquet_rows
from datamodules.recommender.reading.sequence_conversion import to_sequences
from datamodules.recommender.reading.titles import read_titles
from datamodules.recommender.store.interaction_store import VERSION, InteractionStore
from datamodules.recommender.store.out_of_core import BYTES_OF_A_ROW, convert_out_of_core
from datamodules.recommender.store.store_verification import open_verified, replacement_lock
from datamodules.recommender.store.store_writer import write_store
from engine.io.content_hash import ContentHashes, path_for_key
from engine.io.gitignored_folder import add_gitignore
from engine.system.extras import require_extras

log = logging.getLogger("lockstep")

_BYTES_OF_A_FEATURE = 24
"""Memory that the conversion takes for a cell of an event feature: the column, the array, and the sorted array."""

_READER = 2
"""Version of the readers. Version 1 lost rows of files with stray quotes, so its stores are not used again."""


class Conversion(TypedDict, total=False):
    """Columns and filters of a conversion."""

    user_column: str | None  # of a table; None: a well-known name
    item_column: str | None  # likewise
    time_column: str | None  # likewise; "" for a table whose rows are in order, without times
    rating_column: str | None  # likewise; read with `min_rating` only
    min_item_interactions: int  # items with fewer interactions are dropped, see `apply_filters`; by default 5
    min_user_interactions: int  # users with fewer interactions are dropped, after the items; by default 1
    k_core: bool  # repeat these two filters until nothing changes; by default False
    min_rating: float | None  # interactions with a lower rating are dropped before; None: ratings are not read
    event_features: EventFeatures | None  # columns that are features of an event; by default None
    conversion_memory: float  # GB; larger Parquet tables are converted on disk; by default 2


def prepare_store(
    source: Path, *, cache: Path | None = None, verify: bool = False, **conversion: Unpack[Conversion]
) -> InteractionStore:
    """Return the store of a file or folder of interactions; it is converted the first time and opened afterwards.

    The name of the store depends on the source files (content and path, see engine/io/content_hash.py) and on the
    settings, so a changed source is converted again.

    Args:
        source: file or folder, see `file_formats.detect_layout`.
        cache: folder of the stores; by default `.lockstep` beside the data or, if it is read-only, `data/cache`.
        verify: compare an existing store with its checksums, and convert the source again if a file is corrupt.
        **conversion: see Conversion.

    Raises:
        FileNotFoundError: `source` does not exist.
        InteractionError: the source cannot be read. The message names file, line, the value found and the expected
            value.
        StoreError: a corrupt store cannot be replaced.
    """
    plan = _plan(source, conversion, cache)
    *preferred, last = plan.stores
    existing = next((root for root in plan.stores if (root / "meta.json").is_file()), None)
    root = existing or next((root for root in preferred if _can_write(root.parent)), last)
    if existing is None:
        root.parent.mkdir(parents=True, exist_ok=True)
        if cache is None:
            add_gitignore(root.parent)
    memory = conversion.get("conversion_memory", 2.0)
    convert = partial(_convert, plan, root, memory)
    # Saved before the conversion, so that a start after a failure does not hash the source files again.
    plan.hashes.save(root.parent)
    if existing is not None:
        return open_verified(existing, convert) if verify else InteractionStore.open(existing)
    log.info("converting %s (%s) to %s", plan.layout.path, plan.layout.kind, root)
    if plan.layout.time is None:
        log.info("%s: no time column, so the order of the rows is the order of each user's events", plan.layout.path)
    with replacement_lock(root):  # several processes may find no store at once
        return InteractionStore.open(root) if (root / "meta.json").is_file() else convert(log_rows=True)


def is_prepared(source: Path, **conversion: Unpack[Conversion]) -> bool:
    """Return whether `prepare_store` with the same arguments would find a store.

    Nothing is written; raises its errors.
    """
    plan = _plan(source, conversion, None)
    return any((root / "meta.json").is_file() for root in plan.stores)


class _Plan(NamedTuple):
    """What a store is made of, and where it may be."""

    layout: Layout
    filters: Filters
    features: EventFeatures | None
    stores: dict[Path, dict[str, Any]]  # {possible folder: settings of the store}, in order of preference
    hashes: ContentHashes
    files: dict[Path, str]  # {source file: hash of its content}


def _plan(source: Path, conversion: Conversion, cache: Path | None) -> _Plan:
    filters = _filters(conversion)
    layout = detect_layout(
        Path(source),
        user_column=conversion.get("user_column"),
        item_column=conversion.get("item_column"),
        time_column=conversion.get("time_column"),
    )
    if filters.min_rating is not None:
        layout = with_ratings(layout, conversion.get("rating_column"))
    features = conversion.get("event_features")
    event_columns = None if features is None else choose_event_columns(layout, features)
    caches = [Path(cache)] if cache else [layout.folder / ".lockstep", Path("data/cache")]
    hashes = ContentHashes(caches)
    files = {path: hashes.get(path) for path in (*layout.files, layout.titles) if path}
    stores = {}
    # Paths of the files are written relative to the cache, so each possible folder has a key of its own.
    for folder in caches:
        settings = {
            "version": VERSION,
            "reader": _READER,
            "format": layout.kind,
            "columns": [layout.user, layout.item, layout.time],
            "min_item_interactions": filters.min_item_interactions,
            "min_user_interactions": filters.min_user_interactions,
            "files": [[path_for_key(path, folder), content] for path, content in files.items()],
        }
        # Absent by default, so that stores from before these filters keep their names.
        if filters.k_core:
            settings["k_core"] = True
        if filters.min_rating is not None:
            settings |= {"min_rating": float(filters.min_rating), "rating_column": layout.rating}
        if features is not None:
            settings["event_features"] = [event_columns, len(features.categories)]
        name = "interactions-" + hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
        stores[folder / name] = settings
    return _Plan(layout, filters, features, stores, hashes, files)


def _filters(conversion: Conversion) -> Filters:
    settings: Mapping[str, Any] = conversion
    return Filters(**{name: settings[name] for name in Filters._fields if name in settings})


def _convert(plan: _Plan, root: Path, memory: float, log_rows: bool = False) -> InteractionStore:
    layout, filters, settings = plan.layout, plan.filters, plan.stores[root]
    row_bytes = BYTES_OF_A_ROW + (0 if plan.features is None else _BYTES_OF_A_FEATURE * len(plan.features.columns))
    if not layout.separator and (rows := count_parquet_rows(layout.files)) * row_bytes > memory * 1e9:
        if plan.features is not None:
            raise InteractionError(
                f"{layout.path}: {rows:,} rows with data.init_args.event_features need {rows * row_bytes / 1e9:.2g} GB "
                f"of memory, found conversion_memory {memory:g}; the conversion on disk has no event features: raise "
                "data.init_args.conversion_memory, or remove event_features"
            )
        require_extras({"large": f"the conversion of {rows:,} rows in {memory:g} GB (conversion_memory)"})
        return convert_out_of_core(
            layout, filters, root, memory_gb=memory, source=settings, check_source=partial(_check_unchanged, plan)
        )
    rows_read = read_interactions(layout)
    if plan.features is not None:
        rows_read = rows_read._replace(features=read_event_columns(layout, plan.features, len(rows_read.users)))
    sequences, report = to_sequences(rows_read, filters)
    if log_rows:
        log.info("%s: %s", layout.path, report)
    titles = read_titles(layout.titles, layout.item) if layout.titles else {}
    _check_unchanged(plan)
    return write_store(
        root,
        **sequences._asdict(),
        # The title of an item that is missing in the file of titles is its id.
        titles=[titles.get(item, item) for item in sequences.item_ids] if titles else None,
        has_times=layout.time is not None,
        source=settings,
    )


def _check_unchanged(plan: _Plan) -> None:
    """Check that the files still have the content that the store is named after.

    Raises:
        SourceChangedError: a file was changed while it was read.
    """
    for path, content in plan.files.items():
        if not path.is_file() or plan.hashes.get(path) != content:
            raise SourceChangedError(f"{path}: was changed while it was read; start again when no program writes to it")


def _can_write(folder: Path) -> bool:
    if not folder.parent.stat().st_mode & 0o222:
        return False  # read-only by its mode; the superuser could write there but should not
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False
