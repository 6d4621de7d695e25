"""Whether a checkpoint is whole, when it was saved, and which is the newest good one of a run."""

import errno
import logging
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from engine.events import event
from engine.manifest import MANIFEST, changed

log = logging.getLogger("lockstep")

CHECKPOINTS = "checkpoints"
"""The folder of a run's checkpoints, inside the run's folder."""

PROGRESS = "meta.pt"
"""In a sharded checkpoint (a folder): the file with all that is not weights or optimizer state."""


class DamagedCheckpoint(ValueError):
    """A checkpoint that is not what was written."""


def verify(path: Path) -> None:
    """Reads a checkpoint through and compares the CRC-32 that torch has stored for every part of it.

    A sharded checkpoint (a folder) is whole when its index is there, and every file as its manifest says; of one that
    was not written here, and has none, every shard with the size that the index names.

    Raises:
        DamagedCheckpoint: names the file and what was found.
        OSError: it cannot be read.
    """
    if path.is_dir():
        _verify_shards(path)
        return
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
            names = file.namelist()
            # torch gives a part that is marked as a folder no content, and loads what happens to be in memory.
            damaged = damaged or next((part.filename for part in file.infolist() if part.external_attr & 0x10), None)
    except Exception as error:  # a damaged directory of the parts leads anywhere, also to places before the file
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        cut = " (cut short, or no checkpoint)" if "not a zip" in str(error) else ""
        raise DamagedCheckpoint(f"{path} is damaged: {error}{cut}, {path.stat().st_size:,} bytes") from error
    if damaged is not None:
        raise DamagedCheckpoint(f"{path} is damaged: {damaged.partition('/')[2]} in it has changed since it was saved")
    if not any(name.endswith("/data.pkl") for name in names):
        raise DamagedCheckpoint(f"{path} is no checkpoint: a zip file without torch's data.pkl")
    head(path)  # what no CRC covers: the directory of the parts


def _verify_shards(folder: Path) -> None:
    if not any((folder / name).is_file() for name in (".metadata", PROGRESS)) and not list(folder.glob("*.distcp")):
        raise DamagedCheckpoint(f"{folder} is a folder, not a checkpoint")
    try:
        problem = changed(folder) if (folder / ".metadata").is_file() else None
    except FileNotFoundError:
        log.debug("%s has no %s: only the sizes of its files can be checked", folder, MANIFEST)
    else:
        if problem is not None:
            raise DamagedCheckpoint(f"{folder} is damaged: {problem}")
    verify_sizes(folder)


def verify_sizes(folder: Path) -> None:
    """Whether a sharded checkpoint has all that its index names, without reading the shards through.

    Raises:
        DamagedCheckpoint: names the folder and what was found.
    """
    if not (folder / ".metadata").is_file():
        raise DamagedCheckpoint(f"{folder} is not whole: .metadata, which is written last, is missing")
    verify(folder / PROGRESS)
    try:
        with (folder / ".metadata").open("rb") as file:
            places = _Index(file).load().storage_data.values()
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, TypeError) as error:
        raise DamagedCheckpoint(f"{folder} is damaged: .metadata cannot be read ({error})") from error
    sizes: dict[str, int] = {}
    for place in places:
        sizes[place.relative_path] = max(sizes.get(place.relative_path, 0), place.offset + place.length)
    for name, size in sizes.items():
        shard = folder / name
        found = shard.stat().st_size if shard.is_file() else 0
        if found < size:
            raise DamagedCheckpoint(f"{folder} is not whole: {name} has {found:,} of {size:,} bytes")


class _Index(pickle.Unpickler):
    """Reads the index of a sharded checkpoint, which torch pickles, without running what a stranger put into it."""

    def find_class(self, module: str, name: str) -> Any:
        described = module == "torch.distributed.checkpoint.metadata" and name.isidentifier()
        placed = (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo")
        plain = (module, name) in {("torch", "Size"), ("torch", "device"), ("torch.serialization", "_get_layout")}
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        location = module in ("pathlib", "pathlib._local") and name in ("PosixPath", "WindowsPath")
        if described or placed or plain or dtype or location:
            found = super().find_class(module, name)
            if not described or isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def head(path: Path) -> dict[str, Any]:
    """The content of a checkpoint with its tensors left on the disk until they are looked at.

    Raises:
        DamagedCheckpoint: it cannot be read.
    """
    try:
        file = path / PROGRESS if path.is_dir() else path
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        foreign = re.search(r"GLOBAL (\S+)", str(error))
        if foreign:
            raise DamagedCheckpoint(f"{path} holds {foreign[1]}, which could run code: not loaded") from error
        raise DamagedCheckpoint(f"{path} cannot be read: {(str(error) or repr(error)).splitlines()[0]}") from error


def saved_at(path: Path) -> float:
    """When a checkpoint was saved, in seconds since 1970, as it says itself; of a damaged one when it was written."""
    try:
        return float(head(path)["saved_at"])
    except (DamagedCheckpoint, KeyError, TypeError, OSError):
        return path.stat().st_mtime


def candidates(folder: Path) -> list[Path]:
    """All checkpoints from which the run in `folder` can go on, the newest first."""
    checkpoints = folder / CHECKPOINTS
    patterns = ("last.ckpt", "last-*.ckpt", "best.ckpt", "best-*.ckpt")
    found = [path for pattern in patterns for path in checkpoints.glob(pattern)] + list(folder.glob("hpc_ckpt_*.ckpt"))
    return sorted(found, key=saved_at, reverse=True)


def newest_verified(folder: Path) -> Path | None:
    """The newest checkpoint of the run in `folder` that verifies; says which it passed over, and why.

    None when the run has no checkpoint. To be asked by one process for all.

    Raises:
        DamagedCheckpoint: there are checkpoints, but none verifies.
    """
    passed_over = []
    for path in candidates(folder):
        try:
            verify(path)
        except (DamagedCheckpoint, OSError) as error:
            passed = event("checkpoint_passed_over", path=str(path), reason=str(error))
            log.warning("passing over %s: %s", path.name, error, extra=passed)
            passed_over.append(f"{path.name} ({error})")
        else:
            if passed_over:
                log.warning("taking %s instead", path.name)
            return path
    if passed_over:
        raise DamagedCheckpoint(
            f"{folder} has checkpoints, but none of them is whole: {'; '.join(passed_over)}. Bring one back from a "
            "copy, name one with --ckpt_path FILE, or begin anew with another --run_name"
        )
    return None
