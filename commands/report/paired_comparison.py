"""Compares two recommenders by the ranks that `test` or `validate` has kept, and reports the better in two lines.

numpy is imported only if a run has a file of ranks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.report.kept_ranks import STAGES, KeptRanks, OtherSettingsError, kept_ranks
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from lightning_modules.recommender.ranks.paired_test import Difference
    from lightning_modules.recommender.ranks.rank_file import UserRanks


def paired_comparison(folders: Sequence[Path], cutoffs: Sequence[int] = (10,)) -> list[str]:
    """Return lines on which of two runs is better, or on why they cannot be compared.

    Args:
        folders: run directories.
        cutoffs: values of k.

    Returns:
        No lines unless there are two runs and at least one of them has a file of ranks.

    Raises:
        ValueError: a file of ranks is truncated or has changed.
        OSError: a file cannot be read.
    """
    if len(folders) != 2:
        return []
    names = _names(folders)
    try:
        found = [kept_ranks(folder) for folder in folders]
    except OtherSettingsError as error:
        return [f"no paired test: {error}"]
    if not any(found):
        return []
    for stage in STAGES:
        if all(stage in ranks for ranks in found):
            return _compare(names, [ranks[stage] for ranks in found], cutoffs)
    missing = [f"{name} has {_files(ranks)}" for name, ranks in zip(names, found, strict=True)]
    command = f"{PROGRAM} test --run_name NAME"
    return [f"no paired test: {' and '.join(missing)}; `{command}` writes ranks-test.npz"]


def _names(folders: Sequence[Path]) -> list[str]:
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def _files(ranks: KeptRanks) -> str:
    return " and ".join(f"ranks-{stage}.npz" for stage in ranks) or "no file of ranks"


def _compare(names: Sequence[str], runs: Sequence["UserRanks"], cutoffs: Sequence[int]) -> list[str]:
    if problem := _incomparable(names, *runs):
        return [f"no paired test: {problem}"]
    from lightning_modules.recommender.ranks.paired_test import paired_test
    from lightning_modules.recommender.ranks.rank_metrics import gains

    a, b = runs
    differences = paired_test(a.rank, b.rank, gains(cutoffs))
    where = f"{'test' if a.header.stage == 'test' else 'validation'}, {len(a.users):,} users"
    protocol = a.header.protocol and f"{a.header.protocol}/"
    differences = [found._replace(metric=protocol + found.metric) for found in differences]
    numbers = "; ".join(map(_numbers, differences))
    return [
        f"{where}: {_verdict(names, differences)}",
        f"{names[1]} minus {names[0]}: {numbers} (95 % bootstrap interval, permutation test)",
    ]


def _numbers(found: "Difference") -> str:
    difference, low, high = found.interval
    p = "p < 0.001" if found.p < 0.001 else f"p = {found.p:.3f}"
    return f"{found.metric} {difference:+.4f} [{low:+.4f}, {high:+.4f}], {p}"


def _verdict(names: Sequence[str], differences: Sequence["Difference"]) -> str:
    better: dict[str, list[str]] = {}
    for found in differences:
        if found.is_significant:
            better.setdefault(names[found.interval.value > 0], []).append(found.metric)
    unclear = [found.metric for found in differences if not found.is_significant]
    if not better:
        return f"no significant difference between {names[0]} and {names[1]} by {_joined(unclear)}"
    parts = [
        f"{name} is better than {names[name == names[0]]} by {_joined(metrics)}" for name, metrics in better.items()
    ]
    if unclear:
        parts.append(f"the difference is not significant by {_joined(unclear)}")
    return "; ".join(parts)


def _joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _incomparable(names: Sequence[str], a: "UserRanks", b: "UserRanks") -> str:
    """Return why two evaluations are not of the same task; empty if they are."""
    import numpy as np

    if a.header.protocol != b.header.protocol:
        given = [_protocol(run.header.protocol) for run in (a, b)]
        return f"{names[0]} is evaluated with {given[0]} and {names[1]} with {given[1]}, which are different tasks"
    if a.users != b.users:
        only = [sorted(set(one.users) - set(other.users)) for one, other in ((a, b), (b, a))]
        shown = [f"{len(users):,} of {names[i]} alone" + (f" ({users[0]!r}, ...)" if users else "")
                 for i, users in enumerate(only)]  # fmt: skip
        return f"the runs evaluate different users: {' and '.join(shown)}"
    different = [i for i, (one, other) in enumerate(zip(a.targets, b.targets, strict=True)) if one != other]
    if different:
        first = different[0]
        return (
            f"{len(different):,} of {len(a.users):,} users have different held-out items: user {a.users[first]!r} "
            f"has {a.targets[first]!r} in {names[0]} and {b.targets[first]!r} in {names[1]}"
        )
    unequal = np.flatnonzero(a.candidates != b.candidates)
    if len(unequal):
        first = int(unequal[0])
        return (
            f"the runs rank different numbers of items: for user {a.users[first]!r} {a.candidates[first]} in "
            f"{names[0]} and {b.candidates[first]} in {names[1]}. model.init_args.remove_seen or the filters differ"
        )
    return ""


def _protocol(name: str) -> str:
    return "the time of the request" if name else "the past alone"
