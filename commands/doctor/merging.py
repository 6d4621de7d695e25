"""Makes one report of those of several processes: what all say is said once, and what differs says who says it."""

from collections.abc import Mapping, Sequence

from commands.doctor.finding import Finding


def merged(
    found: Mapping[int, Sequence[Finding]], names: Mapping[int, str], host_of: Mapping[int, str]
) -> list[Finding]:
    """
    Args:
        found: by process.
        names: of the processes.
        host_of: each process.
    """
    together: dict[tuple[str, str, str], list[tuple[int, Finding]]] = {}
    for rank in sorted(found):
        for finding in found[rank]:
            # Free memory and times differ by a little between processes that mean the same.
            key = finding.check, finding.status, finding.remedy
            together.setdefault(key, []).append((rank, finding))
    report = []
    for said in together.values():
        rank, finding = said[0]
        ranks = [other for other, _ in said]
        if finding.status == "ok" or len(set(ranks)) == len(found) and len({f.found for _, f in said}) == 1:
            report.append(finding)
            continue
        for first in _one_of_each_host(said, host_of):
            others = {other for other, _ in said if host_of[other] == host_of[first[0]]} - {first[0]}
            beside = f" (and {len(others)} beside it)" if others else ""
            about = names[first[0]]
            words = first[1].found if about in first[1].found else f"{about}{beside}: {first[1].found}"
            report.append(first[1]._replace(found=words) if len(found) > 1 else first[1])
    return report


def _one_of_each_host(said: Sequence[tuple[int, Finding]], host_of: Mapping[int, str]) -> list[tuple[int, Finding]]:
    """All that the first process of each host says, of those that say it."""
    firsts: dict[str, int] = {}
    for rank, _ in said:
        firsts.setdefault(host_of[rank], rank)
    return [(rank, finding) for rank, finding in said if firsts[host_of[rank]] == rank]
