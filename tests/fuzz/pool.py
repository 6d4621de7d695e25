"""Worker of a reader, which is replaced when it hangs or dies."""

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from tests.fuzz.outcome import Outcome, OutcomeKind
from tests.fuzz.reader import Input
from tests.fuzz.readers import reader
from tests.fuzz.worker import READY, Compared, Read, work

_START = 120.0
"""Most seconds until a worker has imported what it needs."""

_WALL = 10.0
"""Wall seconds for each CPU second that a read may take: other programs use the cores, too."""


class Worker:
    """Reads inputs in a process of its own.

    Args:
        name: the reader.
    """

    def __init__(self, name: str) -> None:
        self.name, self.wall = name, _WALL * reader(name).seconds
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def read(self, mutated: Input) -> Outcome:
        """Return the outcome of an input."""
        connection = self._started()
        connection.send(mutated)
        first = self._receive(connection)
        if not isinstance(first, Read):
            return first
        if first.kind is not None:
            return Outcome(first.kind, first.detail, first.seconds, first.megabytes)
        second = self._receive(connection)
        if isinstance(second, Compared):
            return Outcome(second.kind, second.detail, first.seconds, first.megabytes)
        assert isinstance(second, Outcome)
        # The reader has accepted the input; a reference that dies at it compares nothing.
        return Outcome(OutcomeKind.RIGHT, f"not compared: the reference ended: {second.detail}", first.seconds)

    def _receive(self, connection: Connection) -> Read | Compared | Outcome:
        if not connection.poll(self.wall):
            self._end()
            return Outcome(OutcomeKind.TIME, f"no end within {self.wall:g} s", self.wall)
        try:
            received: Read | Compared = connection.recv()
        except (EOFError, OSError):
            assert self._process is not None
            self._process.join()
            code = self._process.exitcode or 0
            self._end()
            return Outcome(
                OutcomeKind.TRACEBACK, f"the process was ended by signal {-code}" if code < 0 else f"exit {code}"
            )
        return received

    def _started(self) -> Connection:
        if self._connection is None:
            # Forked from a process that has imported torch and runs nothing: a fork of this process would copy the
            # locks of its threads, and an import for each worker takes longer than a thousand inputs.
            server = multiprocessing.get_context("forkserver")
            server.set_forkserver_preload(["engine.distributed.errors", "tests.fuzz.worker"])
            own, remote = server.Pipe()
            # A process that is killed leaves its inputs, so their folder belongs to this process.
            self._folder = tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True)
            arguments = (remote, self.name, Path(self._folder.name))
            self._process = server.Process(target=work, args=arguments, daemon=True)
            self._process.start()
            remote.close()
            self._connection = own
            output = own.recv() if own.poll(_START) else f"it did not start within {_START:g} s"
            if output != READY:
                self._end()
                raise RuntimeError(f"the worker of {self.name} failed: {output}")
        return self._connection

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._folder is not None:
            self._folder.cleanup()
        self._process = self._connection = self._folder = None
