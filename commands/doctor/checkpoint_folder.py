"""Whether checkpoints can be written: the folder, the room, and how fast the disk really takes them."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from commands.doctor.finding import Finding

_WRITTEN = 32 * 2**20
"""Bytes that are written to measure."""
_TRIED = 2**12
"""Bytes that are written to try whether one can."""
_SHARE = 0.1
"""Of the training time that may go into writing."""
_CHECK = "checkpoint folder"


def checkpoint_findings(
    folder: Path,
    size: int | None,
    kept: int,
    step: float | None = None,
    steps_between: int | None = None,
    measures: bool = True,
) -> Iterator[Finding]:
    """
    Args:
        folder: where the runs' folders are made; need not be there yet, and is not made.
        size: bytes of a checkpoint; None if it is not known.
        kept: checkpoints that are on the disk at most.
        step: seconds of an optimizer step, if it is known.
        steps_between: optimizer steps between two checkpoints.
        measures: whether this process measures for all, which would take the disk from each other; else it only
            tries whether the folder can be written to from here.
    """
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    written = min(_WRITTEN if measures else _TRIED, free)
    try:
        if free < 2**20:
            raise OSError(28, "No space left on device")
        seconds = _write(place, written)
    except OSError as error:
        full = "No space" in str(error) or "quota" in str(error).lower()
        yield Finding(
            _CHECK, "fail", f"{place} cannot be written to: {error.strerror or error}",
            "a training trains until the first checkpoint, and then ends",
            f"df -h {place}; make room" if full else f"ls -ld {place}; make it writable, or train in another folder",
        )  # fmt: skip
        return
    if not measures:
        yield Finding(_CHECK, "ok", f"{place} can be written to; {_human(free)} free")
        return
    speed = written / seconds
    if size is None:
        told = f"{place} takes {_human(speed)}/s with fsync; {_human(free)} free; a checkpoint's size is not known"
        yield Finding(
            _CHECK, "warn", told, f"whether {kept} checkpoints fit shows when the micro batch has been tried",
            "mend what keeps the micro batch from being tried, then python train.py doctor again",
        )  # fmt: skip
        return
    needed = kept * size
    room = f"{kept} checkpoints of {_human(size)} need {_human(needed)}"
    if free < needed:
        yield Finding(
            _CHECK, "fail", f"{place} has {_human(free)} free; {room}",
            "what does not fit is not saved: the second failure in a row ends the training",
            "make room, or keep fewer: --last_checkpoint.keep 1 --best_checkpoint.keep 1",
        )  # fmt: skip
        return
    takes = size / speed
    told = f"{place}: {_human(free)} free, {room}; one takes {takes:.1f} s ({_human(speed)}/s with fsync)"
    between = step * steps_between if step and steps_between else None
    if between is not None and takes > max(1.0, _SHARE * between):
        yield Finding(
            _CHECK, "warn", f"{told}, and {steps_between} steps between two take {between:.1f} s",
            "the training waits for the disk more than it needs to",
            "--checkpoints.asynchronous true, --last_checkpoint.every_n_steps larger, or runs/ on a faster disk",
        )  # fmt: skip
    else:
        yield Finding(_CHECK, "ok", told)


def _write(place: Path, size: int) -> float:
    """Seconds until the disk has taken so many bytes; they are gone afterwards.

    Raises:
        OSError: it does not take them.
    """
    block = os.urandom(min(size, 2**20))  # a file system that compresses would be too fast with zeros
    with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-") as file:
        began = time.perf_counter()
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return max(time.perf_counter() - began, 1e-9)


def _human(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
