"""Reads a cache of samples: memory-mapped Arrow files and a manifest that describes them.

A cached sample is bit-identical to the sample of `SyntheticTimelines`. A cache that was written with other settings, or
by another version of the generator, is refused.

Each shard is one Arrow IPC file with one record batch. A row has the columns values, present, capacities, question,
answer and facts (JSON). The manifest is written last, so a folder with a manifest is complete.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import CHANNELS, Scale
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.synthetic.synthetic_timelines import GENERATOR_VERSION, SyntheticTimelines
from datamodules.temporal.timelines.text.facts import Facts
from datamodules.temporal.timelines.text.number_format import Notation
from engine.io.file_hash import hash_file
from engine.io.json_checksum import CHECKSUM, has_wrong_checksum

log = logging.getLogger("lockstep")

MANIFEST = "manifest.json"

_REWRITE_HINT = "write it again with `prepare`, or name another folder"


class CacheMismatchError(ValueError):
    """The cache does not hold the requested samples. The message names the difference and what to do."""


class ShardRange(NamedTuple):
    """Extent of a split in the cache: its first samples, in each of its first epochs."""

    samples: int  # of an epoch
    epochs: int = 1


def find_corrupt_file(folder: Path) -> str | None:
    """Return the name of the first file that differs from the manifest, or None. Reads all files."""
    for name, file in read_manifest(folder)["files"].items():
        path = Path(folder) / name
        if not path.is_file() or path.stat().st_size != file["size"] or hash_file(path) != file["sha256"]:
            return name
    return None


def verify_cache(folder: Path) -> None:
    """Compare all files of a cache with the checksums of its manifest. One process of a node does so at each start.

    Raises:
        FileNotFoundError: the folder has no complete cache.
        CacheMismatchError: a file is missing or corrupt.
    """
    started = time.monotonic()
    corrupt = find_corrupt_file(folder)
    if corrupt is not None:
        raise CacheMismatchError(
            f"{Path(folder) / corrupt} is corrupt: its size or checksum differs from the manifest; {_REWRITE_HINT}"
        )
    log.info("%s: checksums verified in %.1f s", folder, time.monotonic() - started)


class CachedTimelines:
    """Samples of a cache. Replaces the `SyntheticTimelines` that the cache was written with.

    Memory-mapped pages are read on demand and shared by all processes of a machine.

    Args:
        folder: the cache.
        synthesis: generator that the cache must have been written with.

    Raises:
        FileNotFoundError: the folder has no complete cache.
        CacheMismatchError: the settings, the version of the generator or the size of a file differ.
    """

    def __init__(self, folder: Path, synthesis: SyntheticTimelines) -> None:
        self.folder, self.synthesis = Path(folder), synthesis
        content = read_manifest(self.folder)
        expected = make_manifest(synthesis, {}, {})
        for kind in ("generator_version", "settings"):
            if content[kind] != expected[kind]:
                raise CacheMismatchError(f"{self.folder}: {_difference(kind, content[kind], expected[kind])}")
        for name, file in content["files"].items():
            size = (self.folder / name).stat().st_size if (self.folder / name).is_file() else 0
            if size != file["size"]:
                raise CacheMismatchError(
                    f"{self.folder / name}: found {size:,} bytes, expected {file['size']:,}; {_REWRITE_HINT}"
                )
        self.extents = {Split[name]: ShardRange(*extent) for name, extent in content["extents"].items()}
        self._files = {
            split: [name for name, file in content["files"].items() if file["split"] == split.name] for split in Split
        }
        # Every shard but the last of its split has this size, so the shard of a sample follows by division.
        self._shard = max((file["samples"] for file in content["files"].values()), default=1)
        self._batches: dict[str, Any] = {}

    @property
    def notation(self) -> Notation:
        """Notation of the texts."""
        return self.synthesis.notation

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """Return the sample that `SyntheticTimelines.sample` returns.

        Raises:
            IndexError: the sample is not cached.
        """
        extent = self.extents.get(split, ShardRange(0, 0))
        if not (0 <= index < extent.samples and 0 <= epoch < extent.epochs):
            raise IndexError(
                f"{self.folder}: found {extent.epochs} epochs of {extent.samples:,} samples for {Split(split).name}, "
                f"expected one with sample {index} of epoch {epoch}; {_REWRITE_HINT}"
            )
        shard, row = divmod(epoch * extent.samples + index, self._shard)
        batch = self._batch(self._files[split][shard])
        values, present, capacities, question, answer, facts = (batch.column(k)[row] for k in range(6))
        capacities = tuple(capacities.as_py())
        format = self.notation.format
        return TimelineSample(
            values=values.values.to_numpy().reshape(-1, len(CHANNELS)),
            present=present.values.to_numpy(zero_copy_only=False).reshape(-1, len(CHANNELS)),
            capacities=capacities,
            units=tuple(
                Scale.for_channel(*scale).unit for scale in zip(CHANNELS, [format] * 4, capacities, strict=True)
            ),
            step_ms=self.synthesis.step_ms,
            question=question.as_py(),
            answer=answer.as_py(),
            facts=Facts.from_record(json.loads(facts.as_py())),
        )

    def require(self, split: Split, samples: int, epochs: int = 1) -> None:
        """Check, before training starts, that a split has enough cached samples.

        Raises:
            CacheMismatchError: fewer samples or epochs are cached.
        """
        cached = self.extents.get(split, ShardRange(0, 0))
        if samples > cached.samples or epochs > cached.epochs:
            raise CacheMismatchError(
                f"{self.folder}: found {cached.epochs} epochs of {cached.samples:,} samples for {split.name}, expected "
                f"{epochs} of {samples:,}; {_REWRITE_HINT}"
            )

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker maps the files itself.
        return {**self.__dict__, "_batches": {}}

    def _batch(self, name: str) -> Any:
        if name not in self._batches:
            import pyarrow

            # The batch refers to the mapped pages, which stay mapped after the file is closed.
            with pyarrow.memory_map(str(self.folder / name)) as source:
                self._batches[name] = pyarrow.ipc.open_file(source).get_batch(0)
        return self._batches[name]


def make_manifest(
    synthesis: SyntheticTimelines, extents: Mapping[Split, ShardRange], files: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the manifest of a cache."""
    return {
        "generator_version": GENERATOR_VERSION,
        # Converted to the form that a manifest has after it was read, so that both can be compared.
        "settings": json.loads(json.dumps(asdict(synthesis))),
        "extents": {split.name: list(extent) for split, extent in sorted(extents.items())},
        "files": dict(files),
    }


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder.

    Raises:
        FileNotFoundError: the folder has no manifest.
        CacheMismatchError: the file is not a manifest.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{path}: found none, expected the manifest of a cache; {_REWRITE_HINT}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if set(manifest) - {CHECKSUM} != {"generator_version", "settings", "extents", "files"}:
            raise ValueError(f"found the keys {', '.join(manifest)}")
        if has_wrong_checksum(manifest):
            raise ValueError("a value has changed since it was written")
        manifest.pop(CHECKSUM, None)  # caches of Lockstep 0.1 have none
    except (ValueError, TypeError) as error:
        raise CacheMismatchError(f"{path}: not the manifest of a cache ({error}); {_REWRITE_HINT}") from error
    return manifest


def _difference(kind: str, found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(name for name in found | expected if found.get(name) != expected.get(name))
        differences = [f"{name} {found.get(name)!r} where {expected.get(name)!r} is expected" for name in names]
    else:
        differences = [f"{kind} {found!r} where {expected!r} is expected"]
    return f"found {', '.join(differences)}; {_REWRITE_HINT}"
