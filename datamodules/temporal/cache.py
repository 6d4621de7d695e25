"""Samples made once and kept: Arrow files that are mapped into memory, and a manifest that says what they hold.

A cache saves the little that synthesis costs, and is something to hand on: what is in it is what `Synthesis` would
give, bit by bit. A cache of other settings, or of another version of the generator, is refused.

Every shard is one Arrow IPC file of one record batch; each sample is a row of values, present, capacities, question,
answer and facts (JSON). The manifest is written last, so what has one is whole.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

from datamodules.temporal.channels import CHANNELS, Scale
from datamodules.temporal.facts import Facts
from datamodules.temporal.notation import Notation
from datamodules.temporal.samples import GENERATOR_VERSION, Split, Synthesis, TimelineSample
from engine.durable_file import flush_folder, write_beside

MANIFEST = "manifest.json"
SHARD = 10_000
"""Samples of a file."""


class CacheMismatch(ValueError):
    """The cache does not hold what is asked for; says what differs and what to do."""


class Extent(NamedTuple):
    """How much of a split is kept."""

    samples: int  # of an epoch
    epochs: int = 1


def write_cache(
    folder: Path,
    synthesis: Synthesis,
    extents: Mapping[Split, Extent],
    shard: int = SHARD,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Makes all samples and writes them; where the folder holds exactly these already, it is left as it is.

    Args:
        folder: what is in it of another cache is replaced.
        synthesis: makes the samples.
        extents: how many of each split.
        shard: samples of a file.
        progress: is told (samples done, samples in all) after every file.

    Returns:
        the manifest's path.

    Raises:
        OSError: the disk did not take it. No manifest is there then.
    """
    folder, manifest = Path(folder), Path(folder) / MANIFEST
    if _holds(folder, synthesis, extents):
        return manifest
    _clear(folder)
    every = sum(extent.samples * extent.epochs for extent in extents.values())
    files: dict[str, dict[str, Any]] = {}
    done = 0
    for split, extent in sorted(extents.items()):
        total = extent.samples * extent.epochs
        for start in range(0, total, shard):
            places = range(start, min(start + shard, total))
            samples = [synthesis.sample(split, *divmod(place, extent.samples)) for place in places]
            data = _as_arrow(samples)
            path = folder / f"{split.name.lower()}-{start // shard:05}.arrow"
            _write(path, data)
            digest = hashlib.sha256(data).hexdigest()
            files[path.name] = {"split": split.name, "samples": len(samples), "size": len(data), "sha256": digest}
            done += len(samples)
            if progress is not None:
                progress(done, every)
    _write(manifest, json.dumps(_manifest(synthesis, extents, files), indent=1).encode())
    return manifest


def damage(folder: Path) -> str | None:
    """Which file is not what the manifest says, None where all are; reads them through."""
    for name, file in _read_manifest(folder)["files"].items():
        path = Path(folder) / name
        if not path.is_file() or path.stat().st_size != file["size"]:
            return name
        digest = hashlib.sha256()
        with path.open("rb") as opened:
            while chunk := opened.read(1 << 22):
                digest.update(chunk)
        if digest.hexdigest() != file["sha256"]:
            return name
    return None


class CachedTimelines:
    """A cache that stands in for its `Synthesis`: the same samples from the same calls.

    Pages are read as they are needed and shared by all processes of a machine.

    Args:
        folder: the cache.
        synthesis: what it must have been made with.

    Raises:
        FileNotFoundError: the folder holds no (whole) cache.
        CacheMismatch: other settings, another version of the generator, or a file of another size.
    """

    def __init__(self, folder: Path, synthesis: Synthesis) -> None:
        self.folder, self.synthesis = Path(folder), synthesis
        found = _read_manifest(self.folder)
        expected = _manifest(synthesis, {}, {})
        for kind in ("generator_version", "settings"):
            if found[kind] != expected[kind]:
                raise CacheMismatch(f"{self.folder}: {_difference(kind, found[kind], expected[kind])}")
        for name, file in found["files"].items():
            size = (self.folder / name).stat().st_size if (self.folder / name).is_file() else 0
            if size != file["size"]:
                raise CacheMismatch(f"{self.folder / name}: found {size:,} bytes, expected {file['size']:,}; {_AGAIN}")
        self.extents = {Split[name]: Extent(*extent) for name, extent in found["extents"].items()}
        self._files = {
            split: [name for name, file in found["files"].items() if file["split"] == split.name] for split in Split
        }
        self._shard = max((file["samples"] for file in found["files"].values()), default=1)
        self._batches: dict[str, Any] = {}

    @property
    def notation(self) -> Notation:
        """What the texts are written in."""
        return self.synthesis.notation

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """What `Synthesis.sample` gives.

        Raises:
            IndexError: it was not kept.
        """
        extent = self.extents.get(split, Extent(0, 0))
        if not (0 <= index < extent.samples and 0 <= epoch < extent.epochs):
            raise IndexError(
                f"{self.folder}: found {extent.epochs} epochs of {extent.samples:,} samples for {Split(split).name}, "
                f"expected one with sample {index} of epoch {epoch}; {_AGAIN}"
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
            units=tuple(Scale.of(*one).unit for one in zip(CHANNELS, [format] * 4, capacities, strict=True)),
            step_ms=self.synthesis.step_ms,
            question=question.as_py(),
            answer=answer.as_py(),
            facts=Facts.from_record(json.loads(facts.as_py())),
        )

    def require(self, split: Split, samples: int, epochs: int = 1) -> None:
        """Raises CacheMismatch where less was kept: before a training that would end in the middle of it."""
        kept = self.extents.get(split, Extent(0, 0))
        if samples > kept.samples or epochs > kept.epochs:
            raise CacheMismatch(
                f"{self.folder}: found {kept.epochs} epochs of {kept.samples:,} samples for {split.name}, expected "
                f"{epochs} of {samples:,}; {_AGAIN}"
            )

    def __getstate__(self) -> dict[str, Any]:
        # A worker that is started afresh maps the files itself.
        return {**self.__dict__, "_batches": {}}

    def _batch(self, name: str) -> Any:
        if name not in self._batches:
            import pyarrow

            with pyarrow.memory_map(str(self.folder / name)) as source:
                self._batches[name] = pyarrow.ipc.open_file(source).get_batch(0)
        return self._batches[name]


def _holds(folder: Path, synthesis: Synthesis, extents: Mapping[Split, Extent]) -> bool:
    try:
        found = _read_manifest(folder)
    except (FileNotFoundError, CacheMismatch):
        return False
    return found == _manifest(synthesis, extents, found["files"]) and damage(folder) is None


def _clear(folder: Path) -> None:
    """Takes away what is there of another cache, its manifest first: half of a cache is none."""
    (folder / MANIFEST).unlink(missing_ok=True)
    for split in Split:
        for path in folder.glob(f"{split.name.lower()}-?????.arrow"):
            path.unlink()


_AGAIN = "write it again with `prepare`, or name another folder"


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
    batch = pyarrow.record_batch(columns)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _write(path: Path, data: bytes) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(data)

    def check(hidden: Path) -> None:
        if hidden.stat().st_size != len(data):
            raise OSError(f"{path}: the disk took {hidden.stat().st_size:,} of {len(data):,} bytes")

    os.replace(write_beside(path, write, check), path)
    flush_folder(path.parent)


def _manifest(
    synthesis: Synthesis, extents: Mapping[Split, Extent], files: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "generator_version": GENERATOR_VERSION,
        "settings": json.loads(json.dumps(asdict(synthesis))),
        "extents": {split.name: list(extent) for split, extent in sorted(extents.items())},
        "files": dict(files),
    }


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{path}: found none, expected the manifest of a cache; {_AGAIN}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if set(manifest) != {"generator_version", "settings", "extents", "files"}:
            raise ValueError(f"it holds {', '.join(manifest)}")
    except (ValueError, TypeError) as error:
        raise CacheMismatch(f"{path}: this is no manifest of a cache ({error}); {_AGAIN}") from error
    return manifest


def _difference(kind: str, found: Any, expected: Any) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        names = sorted(name for name in found | expected if found.get(name) != expected.get(name))
        said = [f"{name} {found.get(name)!r} where {expected.get(name)!r} is expected" for name in names]
    else:
        said = [f"{kind} {found!r} where {expected!r} is expected"]
    return f"found {', '.join(said)}; {_AGAIN}"
