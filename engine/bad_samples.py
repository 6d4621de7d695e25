"""What is wrong with one sample, as against with the run: it is named, and may be left out.

Whether a sample is left out depends on the sample alone, so a run leaves out the same ones on any number of processes,
and as every loss term weighs the same (`engine.exact_mean`) it trains the same without them.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.bad_sample import BadSample
from engine.sampling import FILLER, Draw
from engine.workers import at

Made = TypeVar("Made")

OnBadSample = Literal["stop", "skip"]
"""What becomes of a sample that cannot be used: the run ends and names it, or it is left out, up to a limit."""


class LeftOut(NamedTuple):
    """A sample that was drawn and is in no batch."""

    reason: Literal["unusable", "too_long", "known"]  # "known": before the run, by whoever allowed it
    what: str  # names it, with file and row where it has them, and says what is wrong
    sample: int  # its number


def usable(
    indices: NDArray[np.int64], make: Callable[[int], Made | LeftOut], leave_out: bool
) -> tuple[list[Made], NDArray[np.int64], tuple[LeftOut, ...]]:
    """What is made of samples one by one; the indices of those that something is made of; and the others.

    For data sets that say in their batches what they leave out. Others raise BadSample, see `without_bad`.

    Raises:
        BadSample: of a sample, unless such are to be left out.
    """
    made, kept, left_out = [], [], []
    for index in indices.tolist():
        at(index)
        try:
            one = make(index)
        except BadSample as error:
            if not leave_out:
                raise
            one = LeftOut("unusable", str(error), index)
        if isinstance(one, LeftOut):
            left_out.append(one)
        else:
            made.append(one)
            kept.append(index)
    return made, np.array(kept, np.int64), tuple(left_out)


def without_bad(load: Callable[[Draw], Any], draw: Draw) -> tuple[Any, tuple[LeftOut, ...]]:
    """A micro-batch of a draw without the samples of it that `load` raises BadSample of, and these.

    Raises:
        BadSample: of a batch whose samples can all be loaded alone.
    """
    left_out: list[LeftOut] = []
    while True:
        try:
            return load(draw), tuple(left_out)
        except BadSample as error:
            bad = _bad_of(load, draw, error)
            if not bad:
                raise
            left_out += bad
            kept = draw.indices[~np.isin(draw.indices, [one.sample for one in bad])]
            draw = draw._replace(indices=kept if len(kept) else np.array([FILLER]))


def _bad_of(load: Callable[[Draw], Any], draw: Draw, error: BadSample) -> list[LeftOut]:
    if error.sample is not None and error.sample in draw.indices:
        return [LeftOut("unusable", str(error), error.sample)]
    bad = []
    for index in draw.indices[draw.indices != FILLER].tolist():
        at(index)
        try:
            load(draw._replace(indices=np.array([index])))
        except BadSample as reason:
            bad.append(LeftOut("unusable", str(reason), index))
    return bad
