"""Names the splits of synthetic data, and describes such data for model cards."""

from collections.abc import Mapping
from enum import IntEnum

from engine.export.artifacts import GENERATED, DatasetCard


class Split(IntEnum):
    """Split of synthetic data. Its number enters each hash, so splits share neither random numbers nor samples."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


def generated_dataset_card(name: str, content: str, sizes: Mapping[Split, int]) -> DatasetCard:
    """Return the card of generated data.

    Args:
        name: name of the data set.
        content: what its samples are, as the beginning of a sentence.
        sizes: number of samples of each split.
    """
    train, validation, test = (sizes[split] for split in Split)
    counts = f"{train:,} samples an epoch; {validation:,} to validate and {test:,} to test."
    return DatasetCard(name, f"{content}: {counts}", GENERATED)
