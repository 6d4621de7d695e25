"""A reader with a fault for each outcome, to see that the fuzzer counts it. The first word of a file chooses."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.fuzz.reader import Input, InvalidInput, Reader


class Planted(Reader):
    """Rows are the words of a file."""

    seconds: ClassVar[float] = 0.5
    megabytes: ClassVar[float] = 100.0

    def seeds(self) -> Sequence[Input]:
        return [Input("words.txt", b"right one two")]

    def read(self, path: Path) -> Any:
        words = path.read_text(encoding="utf-8").split()
        faults: dict[str, Callable[[], Any]] = {
            "refused": lambda: _refuse(f"{path}: line 1: found a word, expected another"),
            "silent": lambda: words.pop(),
            "key": lambda: {}["key"],
            "exit": lambda: os._exit(3),
            "killed": lambda: os.kill(os.getpid(), signal.SIGSEGV),
            "nameless": lambda: _refuse("line 1: found a word"),
            "placeless": lambda: _refuse(f"{path}: found a word"),
            "long": lambda: _refuse(f"{path}: line 1\n\n\nfound a word"),
            "busy": _work,
            "asleep": lambda: time.sleep(60),
            "large": lambda: bytearray(os.urandom(1)) * (200 << 20),
        }
        kept = faults.get(words[0] if words else "", lambda: None)()
        return words if kept is None or isinstance(kept, str) else len(kept)

    def reference(self, path: Path) -> Any:
        words = path.read_bytes().decode("utf-8").split()
        if "invalid" in words:
            raise InvalidInput("it has the word invalid")
        return words


READERS = {"planted": Planted}


def _refuse(message: str) -> None:
    raise ValueError(message)


def _work() -> None:
    end = time.process_time() + 0.7
    while time.process_time() < end:
        pass
