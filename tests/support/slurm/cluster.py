"""Runs a real SLURM cluster of two nodes on this machine, without systemd: munged, slurmctld and two slurmd.

Tests use it as a fixture. As root, `python -m tests.support.slurm.cluster` starts it by hand: it prints the variable
that sbatch, srun and scontrol need, and stops the cluster at Ctrl-C.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo")
NODES = ("127.0.0.1", "127.0.0.2")
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def missing() -> str | None:
    """Why there can be no cluster on this machine; None where there can be."""
    absent = [program for program in PROGRAMS if shutil.which(program, path=PATH) is None]
    if absent:
        return f"not installed: {', '.join(absent)} (on Debian and Ubuntu, as root: tests/system_packages.sh)"
    return None if os.geteuid() == 0 else "slurmd has to be started by root"


class Cluster:
    """A running cluster. All that it starts, jobs included, ends with `close`.

    Args:
        folder: for configuration, key, state and logs. Its path has to be short: it holds a socket.
        machines: the network namespace of each node by its address; None: two nodes on this machine's loopback.
        controller: address of slurmctld, which the nodes can reach.

    Raises:
        RuntimeError: it did not come up; the message has the daemons' output.
    """

    def __init__(self, folder: Path, machines: Mapping[str, str] | None = None, controller: str = "127.0.0.1") -> None:
        self.folder, self._conf = folder, folder / "slurm.conf"
        self._daemons: list[subprocess.Popen[bytes]] = []
        (folder / "state").mkdir(parents=True)
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        template = (Path(__file__).parent / "slurm.conf").read_text(encoding="utf-8")
        addresses = tuple(machines or NODES)
        port, *ports = free_ports(1 + len(addresses))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname=localhost NodeAddr={node if machines else NODES[0]} Port={own} CPUs=2"
            for node, own in zip(addresses, ports, strict=True)
        )
        values = {"folder": str(folder), "port": str(port), "controller": controller, "nodes": nodes}
        values["patience"] = "30" if machines else "300"
        for name, value in values.items():
            template = template.replace(f"{{{name}}}", value)
        self._conf.write_text(template, encoding="utf-8")
        outside = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_"))}
        self.environment = {**outside, "PATH": PATH, "SLURM_CONF": str(self._conf)}
        try:
            files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
            self._start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
            self._wait_for(folder.joinpath("munge.socket").exists, "munged's socket")
            self._start("slurmctld", "-D", "-c")
            for node in addresses:
                # `ip netns exec` would hide the control groups.
                inside = ("nsenter", f"--net=/run/netns/{machines[node]}") if machines else ()
                self._start(*inside, "slurmd", "-D", "-c", "-N", node)
            idle = f"idle {len(addresses)}"
            self._wait_for(lambda: self.run("sinfo", "-h", "-o", "%T %D", check=False).strip() == idle, "idle nodes")
        except BaseException:
            self.close()
            raise

    # -- jobs --------------------------------------------------------------------------------------------------------

    def run(
        self, *command: str, check: bool = True, timeout: float = 60, folder: Path | None = None, **variables: str
    ) -> str:
        """Return the output of a command, on both streams.

        Raises:
            RuntimeError: its exit code is not 0, unless `check` is false.
        """
        environment = {**self.environment, **variables}
        done = subprocess.run(
            command, env=environment, cwd=folder, timeout=timeout, capture_output=True, text=True, errors="replace"
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def submit(self, *options: str, folder: Path, environment: Mapping[str, str]) -> str:
        """`sbatch ...` in a folder; the job's number."""
        variables: dict[str, Any] = dict(environment)
        return self.run("sbatch", "--parsable", *options, folder=folder, **variables).strip()

    def job(self, number: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`: JobState, ExitCode, Restarts, ..."""
        return dict(re.findall(r"(\S+?)=(\S*)", self.run("scontrol", "--oneliner", "show", "job", number)))

    def end(self, number: str, timeout: float) -> dict[str, str]:
        """Wait until a job has ended for good, and return the fields of `job`.

        Raises:
            TimeoutError: it was not over after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while (job := self.job(number))["JobState"] not in ENDED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {number} is {job['JobState']} after {timeout:.0f} s")
            time.sleep(0.5)
        return job

    # -- daemons -----------------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the cluster: its daemons, and what they have started for jobs."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                # slurmstepd clears its environment, but it writes to the log of its slurmd.
                if process.environ().get("SLURM_CONF") == str(self._conf) or (
                    process.name() == "slurmstepd"
                    and any(Path(file.path).is_relative_to(self.folder) for file in process.open_files())
                ):
                    found.append(process)
        return found

    def close(self) -> None:
        """Ends the daemons and the jobs."""
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=5)
        for daemon in self._daemons:
            daemon.wait(10)

    def _start(self, program: str, *arguments: str) -> None:
        with (self.folder / "output.log").open("ab") as output:
            self._daemons.append(
                subprocess.Popen(
                    [shutil.which(program, path=PATH) or program, *arguments],
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def _wait_for(self, condition: Callable[[], bool], name: str, timeout: float = 30) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in self._daemons):
                printed = "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))
                raise RuntimeError(f"the SLURM cluster does not come up, no {name}:\n{printed}")
            time.sleep(0.05)


if __name__ == "__main__":
    if reason := missing():
        raise SystemExit(f"no SLURM cluster: {reason}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory, ExitStack() as up:
        cluster = Cluster(Path(directory) / "cluster")
        up.callback(cluster.close)
        print(f"export SLURM_CONF={cluster.environment['SLURM_CONF']}   (Ctrl-C takes the cluster down)", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()
