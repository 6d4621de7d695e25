"""Merges the findings of several ranks: equal findings appear once, all others name their rank."""

from collections.abc import Mapping, Sequence

from commands.doctor.check import Finding


def merge_findings(
    findings_by_rank: Mapping[int, Sequence[Finding]], names: Mapping[int, str], host_of: Mapping[int, str]
) -> list[Finding]:
    """Merge the findings of all ranks into one report.

    Args:
        findings_by_rank: {rank: findings}.
        names: {rank: name for messages}.
        host_of: {rank: host name}.
    """
    groups: dict[tuple[str, str, str], list[tuple[int, Finding]]] = {}
    for rank in sorted(findings_by_rank):
        for finding in findings_by_rank[rank]:
            # `found` is not part of the key: free memory and times differ slightly between ranks.
            key = finding.check, finding.status, finding.remedy
            groups.setdefault(key, []).append((rank, finding))
    report = []
    for group in groups.values():
        _, finding = group[0]
        ranks = {rank for rank, _ in group}
        is_equal = len(ranks) == len(findings_by_rank) and len({item.found for _, item in group}) == 1
        if finding.status == "ok" or is_equal or len(findings_by_rank) == 1:
            report += [finding] if len(findings_by_rank) > 1 or finding.status == "ok" else [item for _, item in group]
            continue
        for rank, item in _first_rank_of_each_host(group, host_of):
            count = sum(host_of[other] == host_of[rank] for other in ranks) - 1
            more = f" (and {count} more on this host)" if count else ""
            text = item.found if names[rank] in item.found else f"{names[rank]}{more}: {item.found}"
            report.append(item._replace(found=text))
    return report


def _first_rank_of_each_host(
    group: Sequence[tuple[int, Finding]], host_of: Mapping[int, str]
) -> list[tuple[int, Finding]]:
    """Return the findings of the lowest rank of each host in the group."""
    firsts: dict[str, int] = {}
    for rank, _ in group:
        firsts.setdefault(host_of[rank], rank)
    return [(rank, finding) for rank, finding in group if firsts[host_of[rank]] == rank]
