"""Two machines on one: network namespaces with a cable between them."""

import os
import shutil
import signal
import subprocess
import sys

from tests.conftest import REPOSITORY


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
