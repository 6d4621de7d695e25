"""Names the splits of synthetic data."""

from enum import IntEnum


class Split(IntEnum):
    """Split of synthetic data. Its number enters each hash, so splits share neither random numbers nor samples."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2
