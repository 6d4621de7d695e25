"""Some of the rows of a file: what is held out for validation, and the rest."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.image_chat import ChatFile, ImageChat
from engine.randomness import hash_uniform

_HELD_OUT = 0x4E1D  # the same rows in every run, whatever its seed
_STRETCH = 64  # rows of a file in blocks that are held out together, at most


class Part:
    """A ChatFile of some rows of another.

    Args:
        file: the other.
        rows: which, ascending.
    """

    def __init__(self, file: ChatFile, rows: NDArray[np.int64]) -> None:
        self.file, self.rows = file, rows
        self.identity = hashlib.sha256(f"{file.identity} ".encode() + rows.tobytes()).hexdigest()[:16]
        self.blocks = None
        if file.blocks is not None:
            starts = np.searchsorted(rows, file.blocks.starts)
            held = starts < np.append(starts[1:], len(rows))  # blocks of which a row is here
            self.blocks = file.blocks._replace(starts=starts[held], sizes=file.blocks.sizes[held])

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, row: int) -> str:
        return self.file.name(int(self.rows[row]))

    def read(self, row: int) -> ImageChat:
        return self.file.read(int(self.rows[row]))


def held_out(file: ChatFile, share: float) -> NDArray[np.bool_]:
    """[rows] which are for validation: about this share of them, at least one and not all.

    It goes by the row's number, so that a row is never trained by one run and held out by the next. Of a file in
    blocks neighbours are held out together, or a validation would have to read all of the file.

    Raises:
        ValueError: there are less than two rows.
    """
    rows = len(file)
    if rows < 2:
        raise ValueError(
            f"{rows} samples ({file.name(0) if rows else 'none'}) cannot be shared between training and validation: "
            "give data.init_args.validation files of its own"
        )
    stretch = 1 if file.blocks is None else int(np.clip(rows * share / 8, 1, _STRETCH))
    numbers = hash_uniform(_HELD_OUT, np.arange(rows) // stretch)
    held = numbers < share
    held[numbers.argmin()], held[numbers.argmax()] = True, False
    return held
