"""Writes a cache of samples: Arrow shards first, the manifest last."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.sample_cache import (
    MANIFEST,
    CacheMismatchError,
    ShardRange,
    find_corrupt_file,
    make_manifest,
    read_manifest,
)
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from engine.io.atomic_file import flush_folder, write_temp
from engine.io.gitignored_folder import make_gitignored_folder
from engine.io.json_checksum import with_checksum

SHARD = 10_000
"""Samples per shard."""


def write_cache(
    folder: Path,
    synthesis: SyntheticTimelines,
    extents: Mapping[Split, ShardRange],
    shard: int = SHARD,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Generate all samples and write them to a folder, unless it already holds exactly these samples.

    Args:
        folder: the cache; files of another cache in it are replaced.
        synthesis: generator of the samples.
        extents: number of samples and epochs of each split.
        shard: samples per file.
        progress: called with (samples written, samples in total) after each file.

    Returns:
        Path of the manifest.

    Raises:
        OSError: the disk rejected a file. The folder has no manifest then.
    """
    manifest = folder / MANIFEST
    if _is_current(folder, synthesis, extents):
        return manifest
    make_gitignored_folder(folder)
    _clear(folder)
    sample_count = sum(extent.samples * extent.epochs for extent in extents.values())
    files: dict[str, dict[str, Any]] = {}
    done = 0
    for split, extent in sorted(extents.items()):
        total = extent.samples * extent.epochs
        for start in range(0, total, shard):
            indices = range(start, min(start + shard, total))
            samples = [synthesis.sample(split, *divmod(index, extent.samples)) for index in indices]
            data = _as_arrow(samples)
            path = folder / f"{split.name.lower()}-{start // shard:05}.arrow"
            _write(path, data)
            digest = hashlib.sha256(data).hexdigest()
            files[path.name] = {"split": split.name, "samples": len(samples), "size": len(data), "sha256": digest}
            done += len(samples)
            if progress is not None:
                progress(done, sample_count)
    # The manifest is written last: a folder without one is an interrupted cache, which is written anew.
    content = with_checksum(make_manifest(synthesis, extents, files))
    _write(manifest, json.dumps(content, indent=1).encode())
    return manifest


def _is_current(folder: Path, synthesis: SyntheticTimelines, extents: Mapping[Split, ShardRange]) -> bool:
    try:
        content = read_manifest(folder)
    except (FileNotFoundError, CacheMismatchError):
        return False
    return content == make_manifest(synthesis, extents, content["files"]) and find_corrupt_file(folder) is None


def _clear(folder: Path) -> None:
    """Delete the files of another cache. The manifest goes first, so an incomplete cache is never read."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for split in Split:
        for path in folder.glob(f"{split.name.lower()}-?????.arrow"):
            path.unlink()


def _as_arrow(samples: list[TimelineSample]) -> bytes:
    import pyarrow

    columns = {
        "values": pyarrow.array([sample.values.ravel() for sample in samples], pyarrow.list_(pyarrow.float32())),
        "present": pyarrow.array([sample.present.ravel() for sample in samples], pyarrow.list_(pyarrow.bool_())),
        "capacities": pyarrow.array([sample.capacities for sample in samples], pyarrow.list_(pyarrow.float64())),
        "question": pyarrow.array([sample.question for sample in samples], pyarrow.string()),
        "answer": pyarrow.array([sample.answer for sample in samples], pyarrow.string()),
        "facts": pyarrow.array([json.dumps(sample.facts.as_record()) for sample in samples], pyarrow.string()),
    }
    # A single record batch, so that a sample is found by its row.
    batch = pyarrow.record_batch(columns)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _write(path: Path, data: bytes) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(data)

    def check(temporary: Path) -> None:
        if temporary.stat().st_size != len(data):
            raise OSError(f"{path}: only {temporary.stat().st_size:,} of {len(data):,} bytes were written")

    os.replace(write_temp(path, write, check), path)
    flush_folder(path.parent)
