"""Reads which users of a ratings.dat have official time stamps, and groups the ranks of a run by them.

A rating of 0 marks a row whose time stamp is filled in. MovieLens has ratings from 1 to 5, so no row of an official
file is marked.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datamodules.recommender.events import EventColumns
from datamodules.recommender.reading.file_formats import detect_layout, with_ratings
from datamodules.recommender.reading.interactions import read_interactions
from datamodules.recommender.reading.sequence_conversion import to_sequences
from lightning_modules.recommender.item_ranks.rank_file import UserRanks
from lightning_modules.recommender.item_ranks.user_groups import UserGroup


class UserStamps(NamedTuple):
    """Last event of a user, and which of the user's time stamps are official."""

    target: str  # original id of the item of the last event, which leave-one-out holds out for the test
    all_official: bool
    ends_official: bool  # those of the last event and of the event before it


def read_user_stamps(ratings: Path) -> dict[str, UserStamps]:
    """Return {original id of a user: its stamps} with the default filters and the order of events of a training.

    Users with a single event are skipped: no event precedes their last event.

    Raises:
        ValueError: a row is invalid, or the file has no ratings.
        OSError: the file cannot be read.
    """
    rows = read_interactions(with_ratings(detect_layout(ratings)))
    assert rows.ratings is not None, "the layout has a column of ratings"
    # As a feature of the events, the marks follow their rows through filters and sorting.
    marks = EventColumns(np.zeros((len(rows.users), 0), np.int32), (rows.ratings != 0).astype(float)[:, None], ())
    sequences, _ = to_sequences(rows._replace(features=marks))
    assert sequences.features is not None
    official = sequences.features.numbers[:, 0] == 1
    stamps = {}
    for user, begin, end in zip(sequences.user_ids, sequences.offsets[:-1], sequences.offsets[1:], strict=True):
        if end - begin > 1:
            target = sequences.item_ids[sequences.items[end - 1] - 1]
            stamps[user] = UserStamps(target, bool(official[begin:end].all()), bool(official[end - 2 : end].all()))
    return stamps


def stamp_groups(ranks: UserRanks, stamps: Mapping[str, UserStamps]) -> Sequence[UserGroup]:
    """Return all users, the users whose stamps are all official, and those whose last two stamps are.

    Args:
        ranks: ranks of a test with leave-one-out.
        stamps: stamps of the users of the ratings that the run was trained on.

    Raises:
        ValueError: the ranks are of other users or held-out items than the last events of the ratings.
    """
    of_user = []
    for user, target in zip(ranks.users, ranks.targets, strict=True):
        if user not in stamps or stamps[user].target != target:
            found = (
                f"{stamps[user].target!r} as its last item" if user in stamps else "fewer than two events of this user"
            )
            raise ValueError(
                f"found user {user!r} with held-out item {target!r} in the ranks, and in the ratings {found}\n"
                "expected the ratings that the run was trained on, with the default filters and leave-one-out\n"
                "give the ratings.dat of the run's data.root"
            )
        of_user.append(stamps[user])
    return [
        UserGroup("all users", np.arange(len(of_user))),
        UserGroup("all stamps official", np.flatnonzero([user.all_official for user in of_user])),
        UserGroup(
            "stamps of the test event and of the event before it official",
            np.flatnonzero([user.ends_official for user in of_user]),
        ),
    ]
