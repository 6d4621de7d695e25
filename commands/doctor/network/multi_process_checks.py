"""Runs checks between the ranks that torchrun or srun has started, and reports the findings of all ranks at once."""

import os
import signal
import socket
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

from commands.doctor.check import Check, Finding
from commands.doctor.network.merge_findings import merge_findings
from commands.doctor.network.reachability import Listener, ListeningAddress, reach_findings, unreachable
from commands.doctor.network.rendezvous import HeartbeatStore, HeartbeatStoreError, restart_id
from commands.doctor.network.version_consistency import (
    code_finding,
    combined_hash,
    package_finding,
    packages,
    source_files,
)
from commands.launch.launched_processes import launched_processes, rendezvous_from_env
from engine.io.name_list import join_names
from engine.system.installation import checkout_commit

_CAUSES = "a firewall between the nodes, or a MASTER_ADDR that is not the first node's"
_WHY_LOST = "it was killed or stopped, or the link to it was cut during the checks"
_LOST_REMEDY = "read its last output and, on its node: dmesg | grep -i 'killed process'"


@dataclass
class MultiProcessDoctor:
    """Checks between ranks, as each rank runs them.

    Args:
        environ: environment variables of the launcher.
        timeout: seconds to wait for all ranks.
        store: store of the ranks; None until the rendezvous.
        hosts: {rank: host name}.
        names: {rank: name for messages}.
    """

    environ: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    timeout: float = 120.0
    store: HeartbeatStore | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    @property
    def is_launched(self) -> bool:
        """Whether a launcher has started several ranks, or has set wrong variables."""
        try:
            rendezvous = rendezvous_from_env(self.environ)
        except (ValueError, KeyError):
            return True  # `_rendezvous` reports the error
        return rendezvous is not None and rendezvous.processes > 1

    @property
    def reports(self) -> bool:
        """Whether this process prints: rank 0, and a rank that lost the store."""
        return self.store is None or self.store.rank == 0

    def checks(self) -> list[Check]:
        """Return the checks, which run in this order and before all others, so that ranks need not wait long."""
        return [
            Check("rendezvous", self._rendezvous, 2 * self.timeout + 30),
            Check("same code", self._compare_code, 90),
            Check("same packages", self._compare_packages, 60),
            Check("reachable", self._check_reachability, 60),
            Check("all-reduce", self._run_collectives, 300),
        ]

    def merge(self, findings: list[Finding]) -> list[Finding]:
        """Return the merged findings of all ranks, the same list on every rank."""
        if self.store is None:
            return findings
        try:
            expected = self.store.present
            gathered = self.store.gather("findings", [list(finding) for finding in findings])
        except HeartbeatStoreError as error:
            self.store = None
            return [*findings, Finding("ranks", "fail", str(error), _WHY_LOST, _LOST_REMEDY)]
        found = {rank: [Finding(*fields) for fields in of_rank] for rank, of_rank in gathered.items()}
        lost = [self._lost(rank) for rank in expected if rank not in gathered]
        return [*merge_findings(found, self.names, self.hosts), *lost]

    def leave(self) -> None:
        """Leave the store, after which rank 0 may end."""
        if self.store is not None:
            # torchrun sends SIGTERM to all ranks once a rank exits with a code other than 0, as all are about to.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.store.leave()

    # -- checks ------------------------------------------------------------------------------------------------------

    def _rendezvous(self) -> Iterator[Finding]:
        rendezvous = rendezvous_from_env(self.environ)
        launched = launched_processes(self.environ)
        assert rendezvous is not None and launched is not None
        self._per_node = launched.per_node
        try:
            store = HeartbeatStore(rendezvous, restart_id(self.environ), self.timeout)
            arrived = store.gather("arrival", [socket.gethostname(), os.getpid()])
        except HeartbeatStoreError as error:
            yield Finding(
                "rendezvous", "fail", str(error),
                "a training would wait here for minutes and then end",
                f"check for {_CAUSES}: nc -zv {rendezvous.address} {rendezvous.port}",
            )  # fmt: skip
            return
        self.store = store
        self.hosts = {rank: arrived[rank][0] for rank in sorted(arrived)}
        self.names = {rank: f"rank {rank} on {host}" for rank, host in self.hosts.items()}
        missing = [rank for rank in range(rendezvous.processes) if rank not in arrived]
        if missing:
            nodes = sorted({rank // launched.per_node for rank in missing})
            yield Finding(
                "rendezvous", "fail",
                f"{_numbered('rank', missing)} of {rendezvous.processes} did not connect to {store.address} within "
                f"{self.timeout:.0f} s ({_numbered('node', nodes)}, counted from 0); "
                f"{_numbered('rank', sorted(arrived))} did",
                "a training starts once all ranks have connected",
                f"read the output of the missing ranks; perhaps {_CAUSES}: "
                f"nc -zv {rendezvous.address} {rendezvous.port}",
            )  # fmt: skip
        else:
            hosts = list(dict.fromkeys(self.hosts.values()))
            yield Finding(
                "rendezvous", "ok",
                f"{launched.launcher}: {rendezvous.processes} processes on {launched.nodes} node(s) "
                f"({join_names(hosts, 4)}) met at {store.address}",
            )  # fmt: skip

    def _compare_code(self) -> Iterator[Finding]:
        if self.store is None:
            return
        files = source_files()
        gathered = self.store.gather("code", [combined_hash(files), checkout_commit()])
        hashes = {self.names[rank]: value[0] for rank, value in gathered.items()}
        differ = len(set(hashes.values())) > 1
        # All ranks see the same hashes, so either all of them take part in this exchange or none.
        lists = self.store.gather("files", files) if differ else {}
        commits = {self.names[rank]: value[1] for rank, value in gathered.items()}
        yield from self._on_rank_zero(code_finding(hashes, commits, {self.names[rank]: lists[rank] for rank in lists}))

    def _compare_packages(self) -> Iterator[Finding]:
        if self.store is not None:
            versions = self.store.gather("packages", packages())
            yield from self._on_rank_zero(package_finding({self.names[rank]: versions[rank] for rank in versions}))

    def _check_reachability(self) -> Iterator[Finding]:
        if self.store is None:
            return
        error_text, listener = "", None
        try:
            listener = Listener(self.environ)
        except (OSError, ValueError) as error:
            error_text = str(error)
        gathered = self.store.gather("addresses", list(listener.address) if listener else error_text)
        self._reachable = False
        failed_to_listen = {rank: value for rank, value in gathered.items() if isinstance(value, str)}
        for rank, why in failed_to_listen.items():
            yield from self._on_rank_zero(
                Finding(
                    "reachable", "fail", f"{self.names[rank]} cannot listen for connections: {why}",
                    "gloo and NCCL connect the ranks at the interface that the variables name",
                    "export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME  # ip -brief address lists them",
                )
            )  # fmt: skip
        if not failed_to_listen:
            # One rank per node is enough: a firewall or a route concerns the host.
            leaders = {rank: ListeningAddress(*gathered[rank]) for rank in gathered if rank in self._leaders}
            is_leader = self.store.rank in leaders
            peers = {rank: address for rank, address in leaders.items() if is_leader and rank != self.store.rank}
            errors = self.store.gather("reached", unreachable(peers))
            failed = {rank: {int(peer): why for peer, why in found.items()} for rank, found in errors.items()}
            self._reachable = not any(failed.values())
            yield from self._on_rank_zero(*reach_findings(leaders, failed, self.names))
        if listener is not None:
            listener.close()

    def _run_collectives(self) -> Iterator[Finding]:
        if self.store is None:
            return
        if not self._reachable or len(self.store.present) < self.store.world_size:
            yield from self._on_rank_zero(_not_run("the ranks do not reach each other"))
            return
        from commands.doctor.network.collective_checks import CollectiveChecks

        yield from CollectiveChecks(self.store, self.names, self._per_node).findings()

    @property
    def _leaders(self) -> list[int]:
        assert self.store is not None
        return [rank for rank in self.store.present if rank % self._per_node == 0]

    def _on_rank_zero(self, *findings: Finding) -> Iterator[Finding]:
        """Yield findings that are equal on all ranks once, on rank 0."""
        if self.reports:
            yield from findings

    def _lost(self, rank: int) -> Finding:
        return Finding("ranks", "fail", f"{self.names[rank]} sent no more heartbeats", _WHY_LOST, _LOST_REMEDY)


def _not_run(why: str) -> Finding:
    return Finding("all-reduce", "warn", f"not run: {why}", "a collective may fail", "fix each FAIL and run it again")


def _numbered(noun: str, numbers: list[int]) -> str:
    return f"{noun}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
