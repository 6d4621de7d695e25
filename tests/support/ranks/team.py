"""Starts the ranks of a run on one machine as torchrun does, and collects their output and exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil
from torch.distributed import TCPStore
from typing_extensions import Self

from tests import tiers
from tests.conftest import REPOSITORY, Run

FORKED_TORCHRUN = ["-m", "torch.distributed.run", "--run-path", "--start-method", "fork"]
"""Arguments of a team of one process: torchrun, whose ranks are forked and so pay for no import."""


class Processes(Protocol):
    """What starts the ranks of a team: ForkServer or FreshProcesses."""

    codes: dict[int, int]
    """Exit codes of processes that have ended, negative for a signal."""

    def start(self, arguments: list[str], environment: Mapping[str, str], folder: Path, output: Path) -> int: ...

    def listen(self) -> None: ...


class ForkServer:
    """The process of fork_server.py, which forks the ranks of every team.

    Args:
        gpus: whether it sees the GPUs, which libraries look for when they are imported. It must not use them: CUDA does
            not survive a fork. So torch asks the driver's management library for their number.
        preload: whether it imports what runs need; otherwise each of its children does.
    """

    def __init__(self, gpus: bool = False, preload: bool = True) -> None:
        seen = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"} if gpus else {"CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ranks.fork_server", *([] if preload else ["bare"])],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", **seen},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        tiers.preloaded.append(psutil.Process(self._process.pid))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._messages = self._process.stdin, self._process.stdout
        os.set_blocking(self._messages.fileno(), False)
        self._heard = b""
        self.codes: dict[int, int] = {}
        self._started: dict[str, int] = {}
        self._ready = False
        self._wait(lambda: self._ready)  # for the imports

    def start(self, arguments: list[str], environment: Mapping[str, str], folder: Path, output: Path) -> int:
        """Fork a process of train.py, or of a module if the arguments begin with -m; return its number."""
        request = {
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(folder),
            "output": str(output),
        }
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        self._wait(lambda: str(output) in self._started)
        return self._started.pop(str(output))

    def _wait(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 170
        while not happened():
            self.listen()
            assert self._process.poll() is None, "the fork server does not answer"
            assert time.monotonic() < deadline, "the fork server does not answer"
            time.sleep(0.01)

    def listen(self) -> None:
        """Takes note of the processes that have started and ended."""
        *lines, self._heard = (self._heard + (self._messages.read() or b"")).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                self._ready = True
            elif "started" in message:
                self._started[message["output"]] = message["started"]
                self.codes.pop(message["started"], None)  # an earlier child may have had this process ID
            else:
                self.codes[message["ended"]] = message["code"]

    def wait(self, pids: Sequence[int], seconds: float) -> list[int | None]:
        """Wait until processes have ended, for `seconds` at most; return exit codes, None for a running process."""
        deadline = time.monotonic() + seconds
        while not all(pid in self.codes for pid in pids) and time.monotonic() < deadline:
            self.listen()
            time.sleep(0.02)
        return [self.codes.get(pid) for pid in pids]

    def close(self) -> None:
        self._requests.close()
        self._messages.close()
        self._process.wait(60)


class Team(Run):
    """Processes of one run. `end` waits for them, `end_cleanly` also asserts that nothing of them is left.

    Args:
        arguments: of train.py.
        processes: how many; one is started as from a shell, more as torchrun starts them.
        restart: how often torchrun has restarted the team.
        environment: variables besides the launcher's.
        store: of the team before, which torchrun keeps when it starts the processes again.
        node_size: processes of a node, by default all; 1 for processes that share a GPU.
    """

    def __init__(
        self,
        forge: Processes,
        arguments: list[str],
        folder: Path,
        run: str,
        processes: int = 2,
        restart: int = 0,
        environment: Mapping[str, str] | None = None,
        store: TCPStore | None = None,
        node_size: int | None = None,
    ) -> None:
        super().__init__(folder / "runs" / run)
        self._forge, self._node_size = forge, node_size or processes
        self.began = time.monotonic()
        self.store = store or TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        number = len(list(folder.glob("team-*")))
        self.outputs = [folder / f"team-{number}-process-{rank}.log" for rank in range(processes)]
        self.pids = []
        for rank in range(processes):
            variables = {**os.environ, **(environment or {})}
            if processes > 1:
                variables |= self._launcher(rank, processes, restart)
            self.pids.append(forge.start([*arguments, "--run_name", run], variables, folder, self.outputs[rank]))

    def _launcher(self, rank: int, processes: int, restart: int) -> dict[str, str]:
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_RUN_ID": "test",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(restart),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % self._node_size),
            "GROUP_RANK": str(rank // self._node_size),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(self._node_size),
        }

    def end(self, timeout: float = 100, of: Sequence[int] | None = None) -> list[int]:
        """Exit codes (negative for a signal), None for a process that has not ended in `timeout` seconds.

        Waits for all processes, or only for those that are named in `of`.
        """
        awaited = self.pids if of is None else [self.pids[process] for process in of]
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self._forge.listen()
            if all(pid in self._forge.codes for pid in awaited):
                break
            time.sleep(0.02)
        self.seconds = time.monotonic() - self.began
        return [self._forge.codes.get(pid) for pid in self.pids]  # type: ignore[misc]

    def end_cleanly(self, timeout: float = 100) -> list[int]:
        """Wait for all processes; assert that all end and that no process of theirs survives them; return exit codes.

        Raises:
            AssertionError: a process is still running after `timeout` seconds, or another one a second after the last.
        """
        codes = self.end(timeout)
        assert None not in codes, f"exit codes {codes}\n{self.output}"
        deadline = time.monotonic() + 1
        while (survivors := self.survivors) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert survivors == [], f"{survivors}\n{self.output}"
        return codes

    def succeeded(self, timeout: float = 100) -> Self:
        """Wait for all processes; assert that they succeed and that no process of theirs survives them."""
        codes = self.end_cleanly(timeout)
        assert codes == [0] * len(self.pids), f"exit codes {codes}\n{self.output}"
        return self

    def wait_for(self, path: str, timeout: float = 100) -> None:
        """Wait until the run has written a file."""
        deadline = time.monotonic() + timeout
        while not (self.folder / path).exists():
            assert time.monotonic() < deadline, f"no {path} after {timeout} s\n{self.output}"
            time.sleep(0.02)

    def signal(self, process: int, number: signal.Signals) -> None:
        """Sends a signal to one process."""
        os.kill(self.pids[process], number)

    @property
    def logs(self) -> list[str]:
        """Output of each rank."""
        return [path.read_text(errors="replace") if path.exists() else "" for path in self.outputs]

    @property
    def output(self) -> str:
        return "\n".join(f"--- process {rank}\n{text}" for rank, text in enumerate(self.logs))

    @output.setter
    def output(self, text: str) -> None:
        """Read from files here."""

    @property
    def survivors(self) -> list[psutil.Process]:
        """Processes of the team, their loaders' workers too, that still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) in self.pids and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return found

    def close(self) -> None:
        """Ends what is left."""
        for process in self.survivors:
            process.kill()
        self.end(10)
