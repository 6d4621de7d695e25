"""Two machines, and the link between them is cut: two network namespaces, one real torchrun in each."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY, TINY, Run

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

LONG = [*TINY, "--model.init_args.dropout", "0", "--trainer.max_epochs", "-1", "--trainer.val_check_interval", "1.0"]
LONG += ["--trainer.check_val_every_n_epoch", "100000", "--last_checkpoint.every_n_steps", "100000"]
LIMIT = 35
"""Seconds that a link may be cut: 20, and as long again until TCP, which tries ever more rarely, tries once more."""


class Machines:
    """Two network namespaces joined by a cable."""

    def __init__(self) -> None:
        self.names = [f"lockstep-{os.getpid()}-{number}" for number in (0, 1)]
        self.addresses = ["10.233.77.1", "10.233.77.2"]
        self.processes: list[subprocess.Popen] = []

    def connect(self) -> str | None:
        """Returns why it is not possible here, or None."""
        if not sys.platform.startswith("linux") or os.geteuid() or shutil.which("ip") is None:
            return "network namespaces take Linux, root and iproute2's ip"
        for name in self.names:
            self.ip("netns", "add", name)
        cable = [f"lk{os.getpid() % 100000}{end}" for end in "ab"]
        made = self.ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        if made.returncode:
            return f"no virtual cable here: {made.stderr.strip()}"
        for name, end, address in zip(self.names, cable, self.addresses, strict=True):
            self.ip("link", "set", end, "netns", name)
            for command in (
                ["link", "set", end, "name", "eth0"],
                ["addr", "add", f"{address}/24", "dev", "eth0"],
                ["link", "set", "lo", "up"],
                ["link", "set", "eth0", "up"],
            ):
                result = self.ip("-n", name, *command)
                if result.returncode:
                    return f"ip {' '.join(command)}: {result.stderr.strip()}"
        return None

    @staticmethod
    def ip(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)

    def link(self, state: str) -> None:
        result = self.ip("-n", self.names[1], "link", "set", "eth0", state)
        assert result.returncode == 0, result.stderr

    def torchrun(self, folder, *options: str) -> None:
        """Starts train.py on both, as on two nodes."""
        for node, name in enumerate(self.names):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
            command += ["--nproc-per-node", "1", "--master-addr", self.addresses[0], "--master-port", "29511"]
            command += [str(REPOSITORY / "train.py"), "fit", *options]
            environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "eth0"}
            with (folder / f"node-{node}.log").open("w") as output:
                self.processes.append(
                    subprocess.Popen(
                        ["ip", "netns", "exec", name, *command],
                        cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=output,
                        start_new_session=True,
                    )  # fmt: skip
                )

    def close(self) -> None:
        for name in self.names:
            for pid in self.ip("netns", "pids", name).stdout.split():
                os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait(30)
        for name in self.names:
            self.ip("netns", "del", name)


@pytest.fixture
def machines():
    both = Machines()
    try:
        why = both.connect()
        if why:
            pytest.skip(why)
        yield both
    finally:
        if shutil.which("ip"):
            both.close()


def test_the_link_is_cut_for_a_while_and_then_for_good(machines, tmp_path, lockstep):
    """Plain: after 20 s it goes on as well; cut for good, nobody notices for 30 minutes."""
    run = Run(tmp_path / "runs" / "cut")
    machines.torchrun(tmp_path, *LONG, "--run_name", "cut", "--watchdog.timeout", str(LIMIT))

    def said():
        return "".join(f"--- node {node}\n{(tmp_path / f'node-{node}.log').read_text()}" for node in (0, 1))

    def until_step(step, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert all(process.poll() is None for process in machines.processes), said()
            try:
                done = max(run.series("train/loss"), default=0)
            except (FileNotFoundError, ValueError):  # not begun, or the last line is being written
                done = 0
            if done >= step:
                return done
            time.sleep(0.1)
        raise AssertionError(f"step {step} was not reached in {seconds} s\n{said()}")

    until_step(5, 150)
    machines.link("down")
    time.sleep(20)
    before = max(run.series("train/loss"))
    machines.link("up")
    until_step(before + 20, 60)
    machines.link("down")
    began = time.monotonic()
    codes = [process.wait(LIMIT + 60) for process in machines.processes]
    assert time.monotonic() - began < LIMIT + 60
    assert 0 not in codes, said()
    first, second = ((tmp_path / f"node-{node}.log").read_text() for node in (0, 1))
    assert "process 1 has given no sign of life for" in first, first
    assert "no answer for" in second and "10.233.77.1:29511" in second, second

    losses = run.series("train/loss")
    through = lockstep("fit", *LONG, "--trainer.max_steps", str(before + 20), name="through").series("train/loss")
    assert sorted(through) == list(range(1, before + 21))
    assert all(abs(losses[step] - through[step]) < 1e-4 for step in through), "the cut has changed the training"
