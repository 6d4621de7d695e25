"""The doctor under torchrun or srun: the processes meet, compare themselves, compute together, and report as one."""

import os
import signal
import socket
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

import commands.lean_imports  # noqa: F401  (before lightning)
from commands.doctor.finding import Check, Finding
from commands.doctor.meeting import Meeting, NoMeeting, life_of
from commands.doctor.merging import merged
from commands.doctor.reach import Listener, Offer, failures, reach_findings
from commands.doctor.same_everywhere import code_finding, commit, package_finding, packages, source_files, whole_hash
from commands.processes import launched_team, meeting_place

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
    hosts: dict[int, str] = field(default_factory=dict)
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
        together = merged(found, self.names, self.hosts)
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
        self.hosts = {rank: came[rank][0] for rank in sorted(came)}  # they have come in any order
        self.names = {rank: f"process {rank} on {host}" for rank, host in self.hosts.items()}
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
            hosts = list(dict.fromkeys(self.hosts.values()))
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
        from commands.doctor.computing import Computing

        yield from Computing(self.meeting, self.names, self._per_node).findings()

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
