"""Groups an evaluation's users by the length of their history, and by the popularity of their held-out item."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.recommender.item_ranks.rank_file import UserRanks


class UserGroup(NamedTuple):
    """Some users of an evaluation."""

    name: str
    rows: NDArray[np.intp]  # [n] their rows in the ranks, in ascending order


def user_groups(ranks: UserRanks) -> list[UserGroup]:
    """Return all users, the quartiles by history length, and head, middle and tail by held-out item.

    Users with equally long histories are in one quartile, and a group without users is skipped. The names of the last
    three groups have the number of training events of the held-out items; see `item_groups`.
    """
    groups = [UserGroup("all users", np.arange(len(ranks.rank)))]
    bounds = np.unique(np.quantile(ranks.history, [0.25, 0.5, 0.75], method="inverted_cdf"))
    quartile = np.searchsorted(bounds, ranks.history)  # the first quartile has histories up to the first bound
    for number in np.unique(quartile).tolist():
        rows = np.flatnonzero(quartile == number)
        span = _span(int(ranks.history[rows].min()), int(ranks.history[rows].max()))
        groups.append(UserGroup(f"history: {span} events", rows))
    low, high = ranks.header.tail_to, ranks.header.head_from
    head, tail = ranks.popularity >= high, ranks.popularity <= low
    for name, own in (
        (f"head targets: {high:,} or more", head),
        (f"middle targets: {_span(low + 1, high - 1)}", ~head & ~tail),
        (f"tail targets: {low:,} or fewer", tail),
    ):
        if own.any():
            groups.append(UserGroup(name, np.flatnonzero(own)))
    return groups


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
