"""Checks the storage for checkpoints: writable directory, free space, write speed."""

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from commands.doctor.check import Finding
from engine.system.byte_size import format_bytes
from engine.system.installation import PROGRAM

_MEASURED = 32 * 2**20
"""Bytes written to measure the speed."""
_TESTED = 2**12
"""Bytes written to test whether the directory is writable."""
_SHARE = 0.1
"""Share of the training time that writing checkpoints may take."""
_CHECK = "checkpoint folder"


def checkpoint_findings(
    folder: Path,
    size: int | None,
    num_checkpoints: int,
    step: float | None = None,
    steps_between: int | None = None,
    measure: bool = True,
) -> Iterator[Finding]:
    """Check whether checkpoints can be written, how fast, and how many fit.

    Args:
        folder: directory of the runs; need not exist, and is not created.
        size: bytes of a checkpoint; None if unknown.
        num_checkpoints: largest number of checkpoints on the disk.
        step: seconds of an optimizer step; None if unknown.
        steps_between: optimizer steps between two checkpoints.
        measure: whether to measure the speed, as one rank does for all; else only test whether the directory is
            writable from this node.
    """
    directory = folder.absolute()
    # The directory is not created, so its nearest parent stands for it.
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    written = min(_MEASURED if measure else _TESTED, free)
    try:
        if free < 2**20:
            raise OSError(errno.ENOSPC, "No space left on device")  # as a write would raise it
        seconds = _write(directory, written)
    except OSError as error:
        yield _not_writable(directory, error)
        return
    if not measure:
        yield Finding(_CHECK, "ok", f"{directory} can be written to; {format_bytes(free)} free")
        return
    speed = written / seconds
    if size is None:
        found = (
            f"{directory} takes {format_bytes(speed)}/s with fsync; {format_bytes(free)} free; a checkpoint's size is "
            "not known"
        )
        why = f"whether {num_checkpoints} checkpoints fit is known once the micro batch has been computed"
        yield Finding(_CHECK, "warn", found, why, f"fix what prevents the micro batch, then run {PROGRAM} doctor again")
        return
    needed = f"{num_checkpoints} checkpoints of {format_bytes(size)} need {format_bytes(num_checkpoints * size)}"
    if free < num_checkpoints * size:
        why = "a checkpoint that does not fit is not saved, and the second failure in a row ends the training"
        remedy = "free space, or keep fewer: --last_checkpoint.keep 1 --best_checkpoint.keep 1"
        yield Finding(_CHECK, "fail", f"{directory} has {format_bytes(free)} free; {needed}", why, remedy)
        return
    takes = size / speed
    found = (
        f"{directory}: {format_bytes(free)} free, {needed}; one takes {takes:.1f} s ({format_bytes(speed)}/s with "
        "fsync)"
    )
    yield _save_time(found, takes, step, steps_between)


def _not_writable(directory: Path, error: OSError) -> Finding:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Finding(
        _CHECK, "fail", f"{directory} cannot be written to: {error.strerror or error}",
        "a training runs until its first checkpoint, and then ends",
        f"df -h {directory}; free space"
        if full
        else f"ls -ld {directory}; make it writable, or train in another folder",
    )  # fmt: skip


def _save_time(found: str, seconds: float, step: float | None, steps_between: int | None) -> Finding:
    """Compare the seconds of a save with the seconds between two saves."""
    between = step * steps_between if step and steps_between else None
    if between is None or seconds <= max(1.0, _SHARE * between):
        return Finding(_CHECK, "ok", found)
    return Finding(
        _CHECK, "warn", f"{found}, and {steps_between} steps between two take {between:.1f} s",
        "the training often waits for the disk",
        "--checkpoints.asynchronous true, --last_checkpoint.every_n_steps larger, or runs/ on a faster disk",
    )  # fmt: skip


def _write(directory: Path, size: int) -> float:
    """Write and sync a temporary file; return the seconds it takes.

    Raises:
        OSError: the file cannot be written.
    """
    block = os.urandom(min(size, 2**20))  # a compressing file system would write zeros too fast
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".doctor-") as file:
        began = time.perf_counter()
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return max(time.perf_counter() - began, 1e-9)
