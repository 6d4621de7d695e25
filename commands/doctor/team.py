"""The doctor under torchrun or srun: the processes meet, compare themselves, compute together, and report as one."""

import os
import signal
import socket
import statistics
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import commands.lean_imports  # noqa: F401  (before lightning)
from commands.doctor.finding import Check, Finding
from commands.doctor.meeting import Meeting, NoMeeting, life_of
from commands.doctor.merging import merged
from commands.doctor.reach import Listener, Offer, failures, reach_findings
from commands.doctor.same_everywhere import code_finding, commit, package_finding, packages, source_files, whole_hash
from commands.processes import launched_team, meeting_place

_SLOW = 100e6
"""Bytes a second below which nodes are badly connected: about gigabit Ethernet."""
_ODD = 0.5
"""A pair of nodes that is so much slower than most is worth a look."""
_SKEW = 1.0
"""Seconds between clocks that matter: checkpoints and logs are told apart by the time."""
_IN_THE_WAY = "a firewall between the nodes or another MASTER_ADDR than that of the first node"


@dataclass
class Team:
    """The processes that a launcher has started, seen by one of them.

    Args:
        environ: what the launcher says.
        patience: seconds for all processes to come.
    """

    environ: MutableMapping[str, str] = field(default_factory=lambda: os.environ)
    patience: float = 120.0
    meeting: Meeting | None = None
    names: dict[int, str] = field(default_factory=dict)

    @property
    def is_one(self) -> bool:
        """Whether there are several processes, or what a launcher has said is wrong."""
        try:
            place = meeting_place(self.environ)
        except (ValueError, KeyError):
            return True  # which `_meet` says
        return place is not None and place.processes > 1

    @property
    def speaks(self) -> bool:
        """Whether this process prints: the first one, or one whom nobody hears."""
        return self.meeting is None or self.meeting.rank == 0

    def checks(self) -> list[Check]:
        """In this order, and before others: whoever waits for the others waits for no other check of theirs."""
        return [
            Check("rendezvous", self._meet, 2 * self.patience + 30),
            Check("same code", self._same_code, 90),
            Check("same packages", self._same_packages, 60),
            Check("reachable", self._reach, 60),
            Check("all-reduce", self._compute, 300),
        ]

    def agreed(self, findings: list[Finding]) -> list[Finding]:
        """What all processes have found, the same list on all of them."""
        if self.meeting is None:
            return findings
        try:
            expected = self.meeting.present
            said = self.meeting.gather("findings", [list(finding) for finding in findings])
        except NoMeeting as error:
            self.meeting = None
            return [*findings, Finding("team", "fail", str(error), _WHY_GONE, _HOW_GONE)]
        found = {rank: [Finding(*words) for words in of_rank] for rank, of_rank in said.items()}
        together = merged(found, self.names, [name.rpartition(" on ")[2] for name in self.names.values()])
        gone = [rank for rank in expected if rank not in said]
        return [*together, *(self._gone(rank) for rank in gone)]

    def leave(self) -> None:
        """After this the first process may end."""
        if self.meeting is not None:
            # torchrun ends all when one ends with another code than 0, as all are about to.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.meeting.leave()

    # -- checks ------------------------------------------------------------------------------------------------------

    def _meet(self) -> Iterator[Finding]:
        place = meeting_place(self.environ)
        team = launched_team(self.environ)
        assert place is not None and team is not None
        self._per_node = team.per_node
        try:
            meeting = Meeting(place, life_of(self.environ), self.patience)
            came = meeting.gather("arrival", [socket.gethostname(), os.getpid()])
        except NoMeeting as error:
            yield Finding(
                "rendezvous", "fail", str(error),
                "a training would wait here for minutes and then end",
                f"look for {_IN_THE_WAY}: nc -zv {place.address} {place.port}",
            )  # fmt: skip
            return
        self.meeting = meeting
        self.names = {rank: f"process {rank} on {host}" for rank, (host, _) in came.items()}
        missing = [rank for rank in range(place.processes) if rank not in came]
        if missing:
            nodes = sorted({rank // team.per_node for rank in missing})
            yield Finding(
                "rendezvous", "fail",
                f"{_ranks(missing)} of {place.processes} did not come to {meeting.address} within "
                f"{self.patience:.0f} s ({_nodes(nodes)}, counted from 0); {_ranks(sorted(came))} did",
                "all processes must be there for a training to begin",
                f"see what the missing ones say; it may be {_IN_THE_WAY}: nc -zv {place.address} {place.port}",
            )  # fmt: skip
        else:
            hosts = list(dict.fromkeys(host for host, _ in came.values()))
            shown = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
            yield Finding(
                "rendezvous", "ok",
                f"{team.launcher}: {place.processes} processes on {team.nodes} node(s) ({shown}) met at "
                f"{meeting.address}",
            )  # fmt: skip

    def _same_code(self) -> Iterator[Finding]:
        if self.meeting is None:
            return
        files = source_files()
        said = self.meeting.gather("code", [whole_hash(files), commit()])
        hashes = {self.names[rank]: word[0] for rank, word in said.items()}
        differ = len(set(hashes.values())) > 1
        lists = self.meeting.gather("files", files) if differ else {}
        commits = {self.names[rank]: word[1] for rank, word in said.items()}
        yield from self._once(code_finding(hashes, commits, {self.names[rank]: lists[rank] for rank in lists}))

    def _same_packages(self) -> Iterator[Finding]:
        if self.meeting is not None:
            said = self.meeting.gather("packages", packages())
            yield from self._once(package_finding({self.names[rank]: found for rank, found in said.items()}))

    def _reach(self) -> Iterator[Finding]:
        if self.meeting is None:
            return
        wrong, listener = "", None
        try:
            listener = Listener(self.environ)
        except (OSError, ValueError) as error:
            wrong = str(error)
        said = self.meeting.gather("offers", list(listener.offer) if listener else wrong)
        self._reachable = False
        unable = {rank: word for rank, word in said.items() if isinstance(word, str)}
        for rank, why in unable.items():
            yield from self._once(
                Finding(
                    "reachable", "fail", f"{self.names[rank]} cannot listen for the others: {why}",
                    "gloo and NCCL connect the processes at the interface that is named there",
                    "export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME  # ip -brief address shows those there are",
                )
            )  # fmt: skip
        if not unable:
            # One process of a node stands for those beside it: what is in the way is in the way of hosts.
            offers = {rank: Offer(*word) for rank, word in said.items()}
            leaders = {rank: offer for rank, offer in offers.items() if rank in self._leaders}
            tried = leaders if self.meeting.rank in leaders else {}
            others = {rank: offer for rank, offer in tried.items() if rank != self.meeting.rank}
            answers = self.meeting.gather("reached", failures(others))
            failed = {rank: {int(other): why for other, why in found.items()} for rank, found in answers.items()}
            self._reachable = not any(failed.values())
            yield from self._once(*reach_findings(leaders, failed, self.names))
        if listener is not None:
            listener.close()

    def _compute(self) -> Iterator[Finding]:
        if self.meeting is None:
            return
        if not self._reachable or len(self.meeting.present) < self.meeting.processes:
            yield from self._once(_not_tried("the processes do not reach each other"))
            return
        import torch
        import torch.distributed as dist

        from commands.doctor.group import LIMIT

        local = self.meeting.rank % self._per_node
        gpus = torch.cuda.device_count() if torch.cuda.is_available() and dist.is_nccl_available() else 0
        everywhere = all(self.meeting.gather("gpus", gpus >= self._per_node).values())
        devices = [torch.device("cpu")] + [torch.device("cuda", local)] * everywhere
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if everywhere else "gloo",
                store=self.meeting.store_for("group"), rank=self.meeting.rank,
                world_size=self.meeting.processes, timeout=LIMIT,
            )  # fmt: skip
            for device in devices:
                yield from self._computed_on(device)
            dist.destroy_process_group()
        except (RuntimeError, ValueError) as error:
            words = (str(error).splitlines() or [type(error).__name__])[0]
            yield Finding(
                "all-reduce", "fail", f"process {self.meeting.rank} on {socket.gethostname()}: {words}",
                "this is what a training does in every step",
                "run it again with TORCH_DISTRIBUTED_DEBUG=DETAIL and NCCL_DEBUG=INFO, which say more",
            )  # fmt: skip

    def _computed_on(self, device: Any) -> Iterator[Finding]:
        from commands.doctor.group import links, sum_is_right

        assert self.meeting is not None
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
        if len(self._leaders) > 1:
            own = {f"{a}-{b}": list(link) for (a, b), link in links(self._leaders, device).items()}
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
            f"{backend}: {usual / 1e6:.0f} MB/s and {latency * 1e6:.0f} us between two of {len(self._leaders)} nodes "
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
        first = {pair: link for pair, link in found.items() if pair.startswith(f"{self._leaders[0]}-")}
        late = {pair: link for pair, link in first.items() if abs(link[2]) - link[3] > _SKEW}
        for pair, (_, _, skew, _) in late.items():
            other = self.names[int(pair.partition("-")[2])]
            yield Finding(
                "clocks", "warn",
                f"the clock of {other} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} that of "
                f"{self.names[self._leaders[0]]}",
                "which checkpoint is the newest, and what the logs say happened first, is told by the clock",
                "switch on NTP on that node: timedatectl set-ntp true; chronyc tracking",
            )  # fmt: skip
        if not late:
            most = max(abs(link[2]) + link[3] for link in first.values())
            yield Finding("clocks", "ok", f"within {most * 1e3:.1f} ms of each other")

    # -- words -------------------------------------------------------------------------------------------------------

    @property
    def _leaders(self) -> list[int]:
        assert self.meeting is not None
        return [rank for rank in self.meeting.present if rank % self._per_node == 0]

    def _once(self, *findings: Finding) -> Iterator[Finding]:
        """What all processes know alike is said by the first."""
        if self.speaks:
            yield from findings

    def _gone(self, rank: int) -> Finding:
        return Finding("team", "fail", f"{self.names[rank]} gave no sign of life any more", _WHY_GONE, _HOW_GONE)


_WHY_GONE = "it was killed, it was stopped, or the link to it was cut while it was examined"
_HOW_GONE = "see what it has said last and, on its node: dmesg | grep -i 'killed process'"


def _not_tried(why: str) -> Finding:
    hidden = "what was not tried may fail"
    return Finding("all-reduce", "warn", f"not tried: {why}", hidden, "mend what is marked FAIL and run it again")


def _ranks(ranks: list[int]) -> str:
    return f"process{'es' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def _nodes(nodes: list[int]) -> str:
    return f"node{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"
