"""Reads the metadata of a sharded checkpoint, without the code that a pickle may refer to."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.distributed.checkpoint import Metadata


class CorruptMetadataError(ValueError):
    """The metadata of a sharded checkpoint is corrupt, or refers to code."""


def read_dcp_metadata(folder: Path) -> "Metadata":
    """Read `.metadata` of a folder: names and shapes of the tensors, and where each is stored.

    Raises:
        CorruptMetadataError: the metadata is corrupt, or refers to code.
        OSError: it cannot be read.
    """
    # What an altered pickle raises; ValueError also for a text that is not UTF-8 and an unknown protocol.
    corrupt = (
        pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, OverflowError, TypeError,
        ValueError,
    )  # fmt: skip
    try:
        with (folder / ".metadata").open("rb") as file:
            metadata: Metadata = _MetadataUnpickler(file).load()
        if metadata.storage_data is None:
            raise TypeError("it names no file")
    except corrupt as error:
        raise CorruptMetadataError(f"{folder} is corrupt: .metadata cannot be read ({error})") from error
    return metadata


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickler for the metadata of a sharded checkpoint that allows only the classes torch writes into it.

    `torch.distributed.checkpoint` pickles the metadata and offers no safe reader.
    """

    def find_class(self, module: str, name: str) -> Any:
        is_metadata = module == "torch.distributed.checkpoint.metadata" and name.isidentifier()
        is_storage = (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo")
        is_plain = (module, name) in {("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout")}
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        is_path = module in ("pathlib", "pathlib._local") and name in ("PosixPath", "WindowsPath")
        if is_metadata or is_storage or is_plain or is_dtype or is_path:
            found = super().find_class(module, name)
            # The metadata module also exposes names that it has imported, such as os.
            if not is_metadata or isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it refers to {module}.{name}")
