"""Splits the rows of a file: rows held out for validation, and the others."""

import hashlib

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.vision_language.chat_file import ChatFile, ImageChat
from engine.determinism.stateless_rng import hash_uniform

_HELD_OUT = 0x4E1D  # hash key; the held-out rows do not depend on the seed of the run
_STRETCH = 64  # maximum run of neighboring rows that are held out together


class RowSubset(ChatFile):
    """A ChatFile of some rows of another ChatFile.

    Args:
        file: the other file.
        rows: int64, row numbers in ascending order.
    """

    def __init__(self, file: ChatFile, rows: NDArray[np.int64]) -> None:
        self.file, self.rows = file, rows
        self.identity = hashlib.sha256(f"{file.identity} ".encode() + rows.tobytes()).hexdigest()[:16]
        self.blocks = None
        if file.blocks is not None:
            # Rows are ascending, so this is the first row of the subset in each block.
            starts = np.searchsorted(rows, file.blocks.starts)
            has_rows = starts < np.append(starts[1:], len(rows))  # blocks with at least one row of the subset
            self.blocks = file.blocks._replace(starts=starts[has_rows], sizes=file.blocks.sizes[has_rows])

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @override
    def name(self, row: int) -> str:
        return self.file.name(int(self.rows[row]))

    @override
    def read(self, row: int) -> ImageChat:
        return self.file.read(int(self.rows[row]))


def held_out_rows(file: ChatFile, share: float) -> RowSubset:
    """Return the rows of a training file that are held out for validation; see `validation_mask`."""
    return RowSubset(file, np.flatnonzero(validation_mask(file, share)))


def training_rows(file: ChatFile, share: float) -> RowSubset:
    """Return the other rows of a training file, without those that `held_out_rows` returns."""
    return RowSubset(file, np.flatnonzero(~validation_mask(file, share)))


def validation_mask(file: ChatFile, share: float) -> NDArray[np.bool_]:
    """Select the rows for validation: about this share of the rows, at least one and not all.

    The selection hashes the number of a row, so no run trains on a row that another run holds out. In a file with
    blocks, neighboring rows are held out together; otherwise a validation would read the whole file.

    Args:
        file: the file.
        share: share of the rows, between 0 and 1.

    Returns:
        bool [rows], true for validation.

    Raises:
        ValueError: there are fewer than two rows.
    """
    rows = len(file)
    if rows < 2:
        raise ValueError(
            f"{rows} samples ({file.name(0) if rows else 'none'}) cannot be split into training and validation: "
            "set data.init_args.validation to other files"
        )
    stretch = 1 if file.blocks is None else int(np.clip(rows * share / 8, 1, _STRETCH))
    numbers = hash_uniform(_HELD_OUT, np.arange(rows) // stretch)
    is_validation = numbers < share
    # Neither side may be empty in a small file.
    is_validation[numbers.argmin()], is_validation[numbers.argmax()] = True, False
    return is_validation
