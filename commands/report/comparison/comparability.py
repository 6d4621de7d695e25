"""Checks that two evaluations are of the same task, so that they can be compared sample by sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from commands.report.comparison.saved_answers import SavedAnswers

if TYPE_CHECKING:
    from lightning_modules.recommender.item_ranks.rank_file import UserRanks


def rank_problem(names: Sequence[str], a: "UserRanks", b: "UserRanks") -> str:
    """Return why two evaluations of recommenders are not of the same task; empty if they are."""
    import numpy as np

    if a.header.protocol != b.header.protocol:
        protocols = [_protocol(run.header.protocol) for run in (a, b)]
        tasks = f"{names[0]} is evaluated with {protocols[0]} and {names[1]} with {protocols[1]}"
        return f"{tasks}, which are different tasks"
    if a.users != b.users:
        only = [sorted(set(own.users) - set(other.users)) for own, other in ((a, b), (b, a))]
        shown = [f"{len(users):,} of {names[i]} alone" + (f" ({users[0]!r}, ...)" if users else "")
                 for i, users in enumerate(only)]  # fmt: skip
        return f"the runs evaluate different users: {' and '.join(shown)}"
    different = [i for i, (own, other) in enumerate(zip(a.targets, b.targets, strict=True)) if own != other]
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


def answer_problem(names: Sequence[str], a: SavedAnswers, b: SavedAnswers) -> str:
    """Return why two tests do not have the same questions; empty if they do."""
    if a.metric != b.metric:
        return f"{names[0]} is tested by {a.metric} and {names[1]} by {b.metric}"
    if len(a.answers) != len(b.answers):
        return f"{names[0]} is tested on {len(a.answers):,} samples and {names[1]} on {len(b.answers):,}"
    for own, other in zip(a.answers, b.answers, strict=True):
        if own[:3] != other[:3] or own.possible != other.possible:
            return (
                f"the runs are tested on different samples: sample {own.sample} is {own.question[:60]!r} with the "
                f"answer {own.expected[:60]!r} in {names[0]}, and {other.question[:60]!r} with {other.expected[:60]!r} "
                f"in {names[1]}"
            )
    return ""
