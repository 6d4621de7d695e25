"""Reads samples for a trial pass without a DataLoader, but with its handling of bad samples."""

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.data.batched_dataset import sample_costs, shuffle_blocks
from engine.data.dataloader import SkipBadSamples
from engine.data.epoch_order import global_batches
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule
from engine.determinism.stateless_rng import global_seed

_CANDIDATES = 4
"""Micro-batches of which the largest is used if the data set has no `sample_costs`."""


def first_samples(data: LockstepDataModule, size: int) -> Any:
    """Return the first `size` training samples of epoch 0 as one micro-batch. Fewer samples are repeated."""
    source = data.train_set
    if isinstance(source, StreamDataset):
        return _load_stream(source, data, size)
    return _load(source, data, next(iter(_epoch(source, data))), size)


def largest_samples(data: LockstepDataModule, size: int) -> Any:
    """Return a micro-batch of `size` training samples that needs as much memory as any."""
    source = data.train_set
    if isinstance(source, StreamDataset):
        return _load_stream(source, data, size)
    costs = sample_costs(source)
    if costs is not None:
        # The costliest samples of the whole set: no micro-batch needs more.
        return _load(source, data, np.argsort(-costs, kind="stable"), size)
    order = np.concatenate(list(islice(iter(_epoch(source, data)), _CANDIDATES)))
    starts = range(0, min(len(order), _CANDIDATES * size), size)
    return max((_load(source, data, order[start:], size) for start in starts), key=_count_elements)


class _FirstRecords:
    """The first records of a stream with random access, as `SkipBadSamples` needs it."""

    def __init__(self, stream: StreamDataset[Any], size: int) -> None:
        self._stream, self._records = stream, list(islice(stream.records(0), size))
        if not self._records:
            raise ValueError(f"{type(stream).__name__}: epoch 0 has no records; expected at least one")

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, request: MicroBatchRequest) -> Any:
        # A padding row needs some record for its shape; it has no weight.
        positions = np.where(request.indices == PADDING_INDEX, 0, request.indices)
        return self._stream.batch(0, request.indices, [self._records[position] for position in positions.tolist()])


def _load_stream(stream: StreamDataset[Any], data: LockstepDataModule, size: int) -> Any:
    records = _FirstRecords(stream, size)
    return _load(records, data, np.arange(len(records)), size)


def _load(source: object, data: LockstepDataModule, indices: NDArray[np.integer], size: int) -> Any:
    """Load `size` of the given samples. Bad samples are skipped, and the rest is repeated in their place."""
    reader, full_indices = SkipBadSamples(source, data.skips_bad_samples), _repeat(indices, size)
    loaded = reader[MicroBatchRequest(0, full_indices)]
    good = full_indices[~np.isin(full_indices, [skipped.sample for skipped in loaded.skipped])]
    if 0 < len(good) < size:  # a smaller micro-batch would underestimate time and memory
        loaded = reader[MicroBatchRequest(0, _repeat(good, size))]
    return loaded.batch


def _epoch(source: Any, data: LockstepDataModule) -> list[NDArray[np.int64]]:
    # The order of training itself, so that a data set reads what it is made to read together.
    return global_batches(len(source), data.plan.batch_size, global_seed(), 0, shuffle_blocks(source, 0))


def _repeat(indices: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """Return `size` indices, from the beginning again if there are fewer."""
    return np.resize(indices[:size], size).astype(np.int64)


def _count_elements(content: object) -> int:
    """Return the number of tensor and array elements in nested containers."""
    if isinstance(content, (Tensor, np.ndarray)):
        return int(np.prod(content.shape))
    if isinstance(content, dict):
        content = list(content.values())
    elif hasattr(content, "__dataclass_fields__"):
        content = list(vars(content).values())
    return sum(map(_count_elements, content)) if isinstance(content, (tuple, list)) else 0
