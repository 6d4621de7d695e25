"""Reads the tensors of a sharded checkpoint by their paths in its nested content."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.metadata import StorageMeta
from typing_extensions import override

from engine.checkpointing.sharded.dcp_metadata import read_dcp_metadata

_WEIGHTS = ("state_dict", "model")
"""Prefixes of the weights: of this program, and of FSDPStrategy of Lightning, which earlier versions used."""

Value = TypeVar("Value")


def tensor_sizes(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return {path in the nested content: (shape, format)} of the tensors of a sharded checkpoint."""
    entries = read_dcp_metadata(folder).state_dict_metadata
    tensors = {path: entry for path, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}
    return {path: (entry.size, entry.properties.dtype) for path, entry in tensors.items()}


def weights_prefix(paths: Iterable[str]) -> str:
    """Return the prefix of the paths of weights."""
    return next((prefix for prefix in _WEIGHTS if any(path.startswith(f"{prefix}.") for path in paths)), _WEIGHTS[0])


def entries_with_prefix(paths: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Return the entries whose path begins with a prefix, without it."""
    return {path[len(prefix) + 1 :]: value for path, value in paths.items() if path.startswith(f"{prefix}.")}


def load_tensors(folder: Path, tensors: dict[str, Tensor], alone: bool = False) -> None:
    """Read tensors in place.

    Args:
        folder: sharded checkpoint, verified.
        tensors: by path; each rank gives the shards that it reads.
        alone: whether this process reads without the other ranks.
    """
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():  # torch announces that a single process reads
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        dcp.load(tensors, storage_reader=_SafeReader(folder), no_dist=alone)


class _SafeReader(FileSystemReader):
    """Reads the index as `verify` does: torch's own reader would run the code that a pickle refers to."""

    @override
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        index = read_dcp_metadata(Path(self.path))
        # The rest of what torch 2.13's `read_metadata` does after unpickling.
        index.storage_meta = index.storage_meta or StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index
