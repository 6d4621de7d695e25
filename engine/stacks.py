"""Where the threads of this process are: what one wants to know of a program that stands still."""

import sys
import threading
import traceback
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

_LIBRARY = str(Path(threading.__file__).parent)


def all_stacks() -> str:
    """The stacks of all threads of this process, the main thread's first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)
    return "\n".join(
        f"thread {names.get(number, number)}\n" + "".join(traceback.format_stack(frame)) for number, frame in frames
    )


def main_thread_at() -> str:
    """What the main thread executes, the house's own and the innermost: "data.py:12 read > threading.py:320 wait"."""
    innermost = frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and _of_a_library(frame.f_code.co_filename):
        frame = frame.f_back
    places = [frame] if frame is innermost else [frame, innermost]
    return " > ".join(_place(place) for place in places if place is not None) or "no Python code"


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


def _of_a_library(file: str) -> bool:
    return "site-packages" in file or file.startswith((_LIBRARY, "<"))


def write_fault(folder: Path, rank: int, title: str, text: str) -> Path:
    """Appends to `faults/process-RANK.txt` in a run's folder; returns the file.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / "faults" / f"process-{rank}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{datetime.now(timezone.utc).isoformat(timespec='seconds')} {title}\n\n{text}\n")
    return path
