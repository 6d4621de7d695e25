"""Checks collectives between ranks: correct sums, bandwidth between nodes, clocks."""

import socket
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

from commands.doctor.check import Finding
from commands.doctor.network.collective_bench import LIMIT, check_all_reduce, links
from commands.doctor.network.rendezvous import HeartbeatStore
from engine.io.error_line import first_line

_SLOW = 100e6
"""Bytes per second below which the connection is a warning: about gigabit Ethernet."""
_OUTLIER = 0.5
"""Share of the median bandwidth below which a pair of nodes is a warning."""
_SKEW = 1.0
"""Seconds between clocks that are a warning: checkpoints and logs are ordered by time."""


@dataclass
class CollectiveChecks:
    """Checks of collectives; every rank calls `findings`.

    Args:
        store: store of all ranks.
        names: {rank: name for messages}.
        per_node: ranks of a node.
    """

    store: HeartbeatStore
    names: dict[int, str]
    per_node: int

    @property
    def leaders(self) -> list[int]:
        """First rank of each node."""
        return [rank for rank in self.store.present if rank % self.per_node == 0]

    def findings(self) -> Iterator[Finding]:
        """Yield findings of all ranks on rank 0, and an error on the rank that raised it."""
        local = self.store.rank % self.per_node
        gpus = torch.cuda.device_count() if torch.cuda.is_available() and dist.is_nccl_available() else 0
        use_nccl = all(self.store.gather("gpus", gpus >= self.per_node).values())
        if use_nccl:
            torch.cuda.set_device(local)  # NCCL uses the current device by default
        devices = [torch.device("cpu")] + [torch.device("cuda", local)] * use_nccl
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if use_nccl else "gloo",
                store=self.store.store_for("group"),
                rank=self.store.rank,
                world_size=self.store.world_size,
                timeout=LIMIT,
            )
            for device in devices:
                yield from self._check_device(device)
        except (RuntimeError, ValueError) as error:
            yield Finding(
                "all-reduce", "fail", f"rank {self.store.rank} on {socket.gethostname()}: {first_line(error)}",
                "a training does this in every step",
                "run it again with NCCL_DEBUG=INFO, on GPUs with TORCH_DISTRIBUTED_DEBUG=DETAIL too",
            )  # fmt: skip
        finally:
            if dist.is_initialized():  # the probe of a micro-batch runs in one process without a group
                dist.destroy_process_group()

    def _check_device(self, device: torch.device) -> Iterator[Finding]:
        backend = "nccl" if device.type == "cuda" else "gloo"
        right, seconds = check_all_reduce(device)
        rights = self.store.gather(f"sums-{backend}", right)
        wrong = [rank for rank, is_right in rights.items() if not is_right]
        if wrong:
            yield from self._on_rank_zero(
                Finding(
                    "all-reduce", "fail", f"{backend}: a wrong sum on {', '.join(self.names[rank] for rank in wrong)}",
                    "every gradient would be wrong, without an error",
                    "check memory and network hardware of these nodes; with NCCL try NCCL_P2P_DISABLE=1",
                )
            )  # fmt: skip
            return
        yield from self._on_rank_zero(
            Finding("all-reduce", "ok", f"{backend}: correct sums; 8 MiB of {self.store.world_size} ranks in "
                    f"{seconds * 1e3:.1f} ms")
        )  # fmt: skip
        if len(self.leaders) > 1:
            measured_links = {f"{a}-{b}": list(link) for (a, b), link in links(self.leaders, device).items()}
            gathered = self.store.gather(f"links-{backend}", measured_links)
            links_by_pair = {key: link for measured in gathered.values() for key, link in measured.items()}
            yield from self._on_rank_zero(*self._bandwidths(links_by_pair, backend))
            # The clocks are the same for both backends, so they are compared once.
            if backend == "gloo":
                yield from self._on_rank_zero(*self._clocks(links_by_pair))

    def _bandwidths(self, links_by_pair: dict[str, list[float]], backend: str) -> Iterator[Finding]:
        rates = {pair: bandwidth for pair, (_, bandwidth, _, _) in links_by_pair.items()}
        usual, slowest = statistics.median(rates.values()), min(rates, key=rates.__getitem__)
        latency = statistics.median(link[0] for link in links_by_pair.values())
        found_text = (
            f"{backend}: {usual / 1e6:.0f} MB/s and {latency * 1e6:.0f} us between two of {len(self.leaders)} nodes "
            f"(median of {len(rates)} pairs)"
        )
        why = "all nodes exchange their gradients in every step, and all wait for the slowest link"
        remedy = "let GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the fast interface; ethtool NAME prints its speed"
        slower = [pair for pair, rate in rates.items() if rate < _OUTLIER * usual]
        if slower:
            a, b = map(int, slowest.split("-"))
            slow = f"{found_text}; only {rates[slowest] / 1e6:.0f} MB/s between {self.names[a]} and {self.names[b]}"
            yield Finding("bandwidth", "warn", slow, why, remedy)
        else:
            yield Finding("bandwidth", "warn" if usual < _SLOW else "ok", found_text, why, remedy)

    def _clocks(self, links_by_pair: dict[str, list[float]]) -> Iterator[Finding]:
        first = {pair: link for pair, link in links_by_pair.items() if pair.startswith(f"{self.leaders[0]}-")}
        late = {pair: link for pair, link in first.items() if abs(link[2]) - link[3] > _SKEW}
        for pair, (_, _, skew, _) in late.items():
            other = self.names[int(pair.partition("-")[2])]
            yield Finding(
                "clocks", "warn",
                f"the clock of {other} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} that of "
                f"{self.names[self.leaders[0]]}",
                "the clock determines which checkpoint is the newest and the order of log lines",
                "enable NTP on that node: timedatectl set-ntp true; chronyc tracking",
            )  # fmt: skip
        if not late:
            max_offset = max(abs(link[2]) + link[3] for link in first.values())
            yield Finding("clocks", "ok", f"within {max_offset * 1e3:.1f} ms of each other")

    def _on_rank_zero(self, *findings: Finding) -> Iterator[Finding]:
        if self.store.rank == 0:
            yield from findings
