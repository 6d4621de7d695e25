"""Dumps the stacks of all threads when a process fails or stalls."""

import logging
import sys
import threading
import traceback
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import TextIO

log = logging.getLogger("lockstep")

_LIBRARY = str(Path(threading.__file__).parent)


def dump_all_stacks() -> str:
    """Return the stacks of all threads of this process, the main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    # False sorts before True: the main thread first.
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    return "\n".join(
        f"thread {names.get(number, number)}\n" + "".join(traceback.format_stack(frame)) for number, frame in frames
    )


def main_thread_location() -> str:
    """Return where the main thread is: innermost project frame > innermost frame.

    For example "data.py:12 read > threading.py:320 wait".
    """
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    # Walk outwards to the innermost frame of the project.
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    frames = [frame] if frame is innermost else [frame, innermost]
    return " > ".join(_describe(frame) for frame in frames if frame is not None) or "no Python code"


def _describe(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


def _is_library(file: str) -> bool:
    return "site-packages" in file or file.startswith((_LIBRARY, "<"))


def open_stack_dumps(folder: Path, rank: int) -> TextIO | OSError:
    """Open `faults/process-RANK.txt` in a run's folder, to append a stack dump; return the error if that fails."""
    path = folder / "faults" / f"process-{rank}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        return error


def write_stack_dump(file: TextIO | OSError, folder: Path, title: str, text: str) -> None:
    """Write a stack dump and close the file; log the dump if it cannot be written.

    Args:
        file: what `open_stack_dumps` returned.
        folder: run directory, for the message.
        title: first line, after the time.
        text: the stacks.
    """
    try:
        if isinstance(file, OSError):
            raise file
        with file:
            file.write(f"{datetime.now(timezone.utc).isoformat(timespec='seconds')} {title}\n\n{text}\n")
    except OSError as error:
        log.error("%s\n(could not be written into %s: %s)", text, folder / "faults", error)
