"""What the processes of a team compute together, and what is to be said of it."""

import socket
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from commands.doctor.finding import Finding
from commands.doctor.group import LIMIT, links, sum_is_right
from commands.doctor.meeting import Meeting

_SLOW = 100e6
"""Bytes a second below which nodes are badly connected: about gigabit Ethernet."""
_ODD = 0.5
"""A pair of nodes that is so much slower than most is worth a look."""
_SKEW = 1.0
"""Seconds between clocks that matter: checkpoints and logs are told apart by the time."""


@dataclass
class Computing:
    """Of all processes of a team, which reach each other; each calls `findings`.

    Args:
        names: of the processes.
        per_node: processes of a node.
    """

    meeting: Meeting
    names: dict[int, str]
    per_node: int

    @property
    def leaders(self) -> list[int]:
        """The first process of each node."""
        return [rank for rank in self.meeting.present if rank % self.per_node == 0]

    def findings(self) -> Iterator[Finding]:
        """Those of all processes alike are given by the first; a failure by the process that it meets."""
        local = self.meeting.rank % self.per_node
        gpus = torch.cuda.device_count() if torch.cuda.is_available() and dist.is_nccl_available() else 0
        everywhere = all(self.meeting.gather("gpus", gpus >= self.per_node).values())
        if everywhere:
            torch.cuda.set_device(local)  # NCCL takes the current one where it is told none
        devices = [torch.device("cpu")] + [torch.device("cuda", local)] * everywhere
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if everywhere else "gloo",
                store=self.meeting.store_for("group"), rank=self.meeting.rank,
                world_size=self.meeting.processes, timeout=LIMIT,
            )  # fmt: skip
            for device in devices:
                yield from self._computed_on(device)
        except (RuntimeError, ValueError) as error:
            words = (str(error).splitlines() or [type(error).__name__])[0]
            yield Finding(
                "all-reduce", "fail", f"process {self.meeting.rank} on {socket.gethostname()}: {words}",
                "this is what a training does in every step",
                "run it again with TORCH_DISTRIBUTED_DEBUG=DETAIL and NCCL_DEBUG=INFO, which say more",
            )  # fmt: skip
        finally:
            if dist.is_initialized():  # a trial of a micro-batch, which is of one process, must not find it
                dist.destroy_process_group()

    def _computed_on(self, device: torch.device) -> Iterator[Finding]:
        backend = "nccl" if device.type == "cuda" else "gloo"
        right, seconds = sum_is_right(device)
        rights = self.meeting.gather(f"sums-{backend}", right)
        wrong = [rank for rank, is_right in rights.items() if not is_right]
        if wrong:
            yield from self._once(
                Finding(
                    "all-reduce", "fail", f"{backend}: a wrong sum on {', '.join(self.names[rank] for rank in wrong)}",
                    "every gradient would be wrong, without a word",
                    "check memory and network hardware of these nodes; with NCCL try NCCL_P2P_DISABLE=1",
                )
            )  # fmt: skip
            return
        yield from self._once(
            Finding("all-reduce", "ok", f"{backend}: right sums; 8 MiB of {self.meeting.processes} processes in "
                    f"{seconds * 1e3:.1f} ms")
        )  # fmt: skip
        if len(self.leaders) > 1:
            own = {f"{a}-{b}": list(link) for (a, b), link in links(self.leaders, device).items()}
            said = self.meeting.gather(f"links-{backend}", own)
            found = {key: link for word in said.values() for key, link in word.items()}
            yield from self._once(*self._bandwidths(found, backend))
            if backend == "gloo":
                yield from self._once(*self._clocks(found))

    def _bandwidths(self, found: dict[str, list[float]], backend: str) -> Iterator[Finding]:
        rates = {pair: bandwidth for pair, (_, bandwidth, _, _) in found.items()}
        usual, slowest = statistics.median(rates.values()), min(rates, key=rates.__getitem__)
        latency = statistics.median(link[0] for link in found.values())
        words = (
            f"{backend}: {usual / 1e6:.0f} MB/s and {latency * 1e6:.0f} us between two of {len(self.leaders)} nodes "
            f"(median of {len(rates)} pairs)"
        )
        why = "all nodes exchange their gradients in every step, and all wait for the slowest link"
        remedy = "let GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the fast interface; ethtool NAME tells its speed"
        odd = [pair for pair, rate in rates.items() if rate < _ODD * usual]
        if odd:
            a, b = map(int, slowest.split("-"))
            slow = f"{words}; only {rates[slowest] / 1e6:.0f} MB/s between {self.names[a]} and {self.names[b]}"
            yield Finding("bandwidth", "warn", slow, why, remedy)
        else:
            yield Finding("bandwidth", "warn" if usual < _SLOW else "ok", words, why, remedy)

    def _clocks(self, found: dict[str, list[float]]) -> Iterator[Finding]:
        first = {pair: link for pair, link in found.items() if pair.startswith(f"{self.leaders[0]}-")}
        late = {pair: link for pair, link in first.items() if abs(link[2]) - link[3] > _SKEW}
        for pair, (_, _, skew, _) in late.items():
            other = self.names[int(pair.partition("-")[2])]
            yield Finding(
                "clocks", "warn",
                f"the clock of {other} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} that of "
                f"{self.names[self.leaders[0]]}",
                "which checkpoint is the newest, and what the logs say happened first, is told by the clock",
                "switch on NTP on that node: timedatectl set-ntp true; chronyc tracking",
            )  # fmt: skip
        if not late:
            most = max(abs(link[2]) + link[3] for link in first.values())
            yield Finding("clocks", "ok", f"within {most * 1e3:.1f} ms of each other")

    def _once(self, *findings: Finding) -> Iterator[Finding]:
        if self.meeting.rank == 0:
            yield from findings
