"""Loads batches and skips bad samples.

Whether a sample is skipped depends on the sample alone, so a run skips the same samples on any number of ranks. All
loss terms have the same weight (`engine.optim.global_loss_mean`), so the training equals a training on the data without
the bad samples.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest, pad_if_empty
from engine.data.worker_process import report_position

Item = TypeVar("Item")

OnBadSample = Literal["stop", "skip"]
"""Policy for a bad sample: end the run with its name, or skip it, up to a limit."""


def check_policy(policy: OnBadSample, tensor_parallel: int) -> None:
    """Check that the ranks which read the same samples agree on them.

    Args:
        policy: see LockstepDataModule.
        tensor_parallel: ranks of a tensor-parallel group.

    Raises:
        ValueError: `skip` with tensor parallelism: a rank would skip a sample that the others of its group can read.
    """
    if policy == "skip" and tensor_parallel > 1:
        raise ValueError(
            f"data.init_args.on_bad_sample skip with trainer.strategy.init_args.tensor_parallel {tensor_parallel}: a "
            "sample that a single rank cannot read would make the batches of its group differ. Use on_bad_sample stop"
        )


class SkippedSample(NamedTuple):
    """A sample that was drawn and is in no batch."""

    reason: Literal["bad", "too_long", "accepted"]
    """Why it is skipped. `accepted`: an evaluation sample that is bad, which the user accepted before the run."""

    what: str
    """Name of the sample, with file and row if it has them, and its defect."""

    sample: int
    """Index in the data set; for a stream the position in the epoch."""


def load_samples(
    indices: NDArray[np.int64], load: Callable[[int], Item | SkippedSample], skip_bad: bool
) -> tuple[list[Item], NDArray[np.int64], tuple[SkippedSample, ...]]:
    """Load samples one by one.

    For data sets whose batches list their skipped samples. Other data sets raise BadSampleError, see
    `load_batch_skipping_bad`.

    Args:
        indices: [b] samples to load.
        load: returns the sample of an index, or why it is skipped.
        skip_bad: skip a sample if `load` raises BadSampleError.

    Returns:
        (samples, [samples] their indices, skipped samples).

    Raises:
        BadSampleError: `load` raised it and `skip_bad` is False.
    """
    items, loaded_indices, skipped = [], [], []
    for index in indices.tolist():
        report_position(index)
        try:
            item = load(index)
        except BadSampleError as error:
            if not skip_bad:
                raise
            item = SkippedSample("bad", str(error), index)
        if isinstance(item, SkippedSample):
            skipped.append(item)
        else:
            items.append(item)
            loaded_indices.append(index)
    return items, np.array(loaded_indices, np.int64), tuple(skipped)


def load_batch_skipping_bad(
    load: Callable[[MicroBatchRequest], Any], request: MicroBatchRequest
) -> tuple[Any, tuple[SkippedSample, ...]]:
    """Load a micro-batch without its bad samples.

    Args:
        load: assembles a micro-batch; raises BadSampleError for a bad sample in it.
        request: the micro-batch. If all its samples are bad, it is loaded with one padding row.

    Returns:
        (micro-batch, skipped samples).

    Raises:
        BadSampleError: of a batch whose samples can all be loaded alone.
    """
    skipped: list[SkippedSample] = []
    while True:
        try:
            return load(request), tuple(skipped)
        except BadSampleError as error:
            # Each turn removes at least one sample, so the loop ends.
            bad = _find_bad(load, request, error)
            if not bad:
                raise
            skipped += bad
            is_bad = np.isin(request.indices, [skip.sample for skip in bad])
            request = request._replace(indices=pad_if_empty(request.indices[~is_bad]))


def _find_bad(
    load: Callable[[MicroBatchRequest], Any], request: MicroBatchRequest, error: BadSampleError
) -> list[SkippedSample]:
    if error.sample is not None and error.sample in request.indices:
        return [SkippedSample("bad", str(error), error.sample)]
    # The error does not name its sample: load each sample alone.
    bad = []
    for index in request.indices[request.indices != PADDING_INDEX].tolist():
        report_position(index)
        try:
            # Only the error matters; the loaded sample is dropped.
            load(request._replace(indices=np.array([index])))
        except BadSampleError as reason:
            bad.append(SkippedSample("bad", str(reason), index))
    return bad
