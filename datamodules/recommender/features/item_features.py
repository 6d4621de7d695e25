"""Loads features of the items of a data set, and of further items that occur in no interaction."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.batch import Catalog, FeaturesIdentity, ItemFeatureArrays
from datamodules.recommender.features.item_encoding import encode_items
from datamodules.recommender.features.item_feature_settings import ItemFeatures
from datamodules.recommender.features.item_reader import read_item_table
from datamodules.recommender.features.item_table import ITEM_OPTION, ItemTable
from datamodules.recommender.features.trained_items import TrainedItems
from datamodules.recommender.reading.errors import InteractionError, preview


class LoadedItemFeatures(NamedTuple):
    """Encoded features, and what they are of."""

    arrays: ItemFeatureArrays
    cold_ids: list[str]  # ids of the items that follow the items of the data
    identity: FeaturesIdentity
    report: str  # numbers of items with and without a row, for the log

    @property
    def trained_items(self) -> TrainedItems | None:
        """The items that occur in the training; None if all items of the data do."""
        trained = self.arrays.trained[: len(self.arrays.trained) - len(self.cold_ids)]  # of the items of the data
        return None if trained[1:].all() else TrainedItems.from_mask(trained)


def with_cold_items(catalog: Catalog, features: LoadedItemFeatures | None) -> Catalog:
    """Return a catalog with these items after the items of the data. Their titles are their ids."""
    if features is None or not features.cold_ids:
        return catalog
    titles = None if catalog.titles is None else [*catalog.titles, *features.cold_ids]
    ids = [*catalog.item_ids, *features.cold_ids]
    return catalog._replace(num_items=len(ids), item_ids=ids, titles=titles)


def load_item_features(
    path: Path, settings: ItemFeatures, item_ids: Sequence[str], trained: NDArray[np.bool_]
) -> LoadedItemFeatures:
    """Read and encode the features of items.

    Args:
        path: the file of the settings.
        settings: columns of the file.
        item_ids: [V] ids of the items of the data.
        trained: [V + 1] whether an item occurs in the training.

    Raises:
        FileNotFoundError: the file does not exist.
        InteractionError: the file is invalid, or has none of the training items.
    """
    table = read_item_table(path, settings)
    row = {item: number for number, item in enumerate(table.ids)}
    # Item 0 (padding) has no row. The rows that remain in `row` belong to cold items.
    data_rows = np.array([-1, *(row.pop(str(item), -1) for item in item_ids)], np.int64)
    covered = int(np.sum(data_rows >= 0))
    if not (trained & (data_rows >= 0)).any():
        raise InteractionError(
            f"{path}: found none of the {int(trained.sum())} training items among {len(table.ids)} ids such as "
            f"{preview(table.ids[0])}, expected ids as in the data, such as {preview(str(item_ids[0]))}; is "
            f"{ITEM_OPTION}.item_column the right one?"
        )
    cold = list(row) if settings.cold_items else []
    row_of = np.concatenate((data_rows, np.array([row[item] for item in cold], np.int64)))
    arrays = encode_items(table, row_of, np.concatenate((trained, np.zeros(len(cold), np.bool_))))
    # Cold items are in `row`, whether or not they are recommended.
    report = f"{path}: features of {covered:,} of {len(item_ids):,} items of the data"
    if row:
        report += f", and of {len(row):,} items without an interaction"
        report += "" if settings.cold_items else f", which {ITEM_OPTION}.cold_items false skips"
    return LoadedItemFeatures(arrays, cold, _identity(table, settings, data_rows, trained), report)


def _identity(
    table: ItemTable, settings: ItemFeatures, row_of: NDArray[np.int64], trained: NDArray[np.bool_]
) -> FeaturesIdentity:
    """Return what a network depends on: the features of the items of the data, and which of them were trained.

    The values are hashed as they are in the file, before any arithmetic, so that all machines have the same hash.
    """
    digest = hashlib.sha256(np.packbits(trained).tobytes())
    digest.update((row_of >= 0).tobytes())
    data_rows = row_of[row_of >= 0]
    for values in (table.numbers, table.vectors):
        selected = values[data_rows]
        # NaN has many bit patterns; all are replaced by the same pattern.
        digest.update(np.where(np.isnan(selected), np.array(np.nan, selected.dtype), selected).tobytes())
    for cells in table.categories.values():
        digest.update("\x1e".join("\x1f".join(cells[row]) for row in data_rows).encode())
        digest.update(b"\x1d")
    columns = [f"categories {name}" for name in settings.categories] + [f"number {name}" for name in settings.numbers]
    if settings.vector is not None:
        columns.append(f"vector {settings.vector} of {table.vectors.shape[1]}")
    return FeaturesIdentity(", ".join(columns), digest.hexdigest())
