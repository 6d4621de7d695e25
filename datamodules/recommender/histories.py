"""Histories from a file, for recommendations to people who are not in the training data (or have moved on since).

One JSON object a line, oldest event first:

    {"items": [1193, 661, 914], "times": [978300760, 978301968, 978302109], "user": "anna"}

``items`` are ids of the data set that the model was trained on, ``times`` are seconds since 1970, ``user`` is optional
(the line number stands in for it).
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.faults import LATEST_TIME
from datamodules.recommender.sequences import EventArrays


class Histories(NamedTuple):
    """The rows of a file, in its order; ``RankingExamples(events, examples, ..., held_out=False)`` batches them."""

    events: EventArrays  # row r of the file is user r
    users: list[str]  # who each row is for
    unknown: int  # events dropped because the model does not know their item
    empty: list[int]  # lines (from 1) of which nothing is left; they keep their row, with length 0

    @property
    def examples(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(users [M], ends [M]): all rows, each to its end."""
        return np.arange(len(self.users)), self.events.offsets[1:]

    @property
    def report(self) -> str:
        """What was dropped, in a sentence for people; empty if nothing was."""
        if not self.unknown and not self.empty:
            return ""
        total = self.unknown + len(self.events.items)
        text = f"{self.unknown} of {total} events were dropped: the model does not know their items."
        if self.empty:
            lines = ", ".join(map(str, self.empty[:10])) + (", ..." if len(self.empty) > 10 else "")
            text += (
                f" {len(self.empty)} of {len(self.users)} histories have no event (lines {lines}): no recommendations."
            )
        return text


def read_histories(path: Path, item_ids: Sequence[object]) -> Histories:
    """Read a file of histories.

    An event whose item is not in ``item_ids`` is dropped and counted, the rest of its history is kept. A history of
    which nothing is left stays as a row of length 0, so that the output has a row for each line; what to recommend
    from nothing is not guessed.

    Args:
        item_ids: [num_items], the data set's own id of item 1, 2, ...; ids are compared as text (``7`` is ``"7"``).

    Raises:
        ValueError: a line is not such an object; the message names file and line, what was found and what was expected.
    """
    number_of = {str(item): number for number, item in enumerate(item_ids, start=1)}
    items, times, offsets = array("i"), array("q"), array("q", [0])
    users, empty, unknown = [], [], 0
    with Path(path).open("rb") as file:
        for line, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                given_items, given_times, user = _parse(text)
            except ValueError as error:
                raise ValueError(f"{path}: line {line}: {error}") from error
            known = [
                (number_of[item], time)
                for item, time in zip(given_items, given_times, strict=True)
                if item in number_of
            ]
            items.extend(item for item, _ in known)
            times.extend(time for _, time in known)
            offsets.append(len(items))
            users.append(str(line) if user is None else user)
            unknown += len(given_items) - len(known)
            if not known:
                empty.append(line)
    if not users:
        raise ValueError(f"{path}: found no line, expected one JSON object a line with 'items' and 'times'")
    events = EventArrays(
        np.array(offsets, np.int64), np.array(items, np.int32), np.array(times, np.int64), len(item_ids)
    )
    return Histories(events, users, unknown, empty)


def _parse(text: bytes) -> tuple[list[str], list[int], str | None]:
    """Items (as text), times and user of a line; ValueError says what is wrong with it."""
    row = json.loads(text)
    if not isinstance(row, Mapping):
        raise ValueError(f"found {_shown(row)}, expected an object with 'items' and 'times'")
    for key in ("items", "times"):
        if not isinstance(row.get(key), list):
            found = f"found {_shown(row[key])}" if key in row else f"found only the keys {sorted(row)}"
            raise ValueError(f"{found}, expected {key!r}: a list")
    items, times, user = row["items"], row["times"], row.get("user")
    if len(items) != len(times):
        raise ValueError(f"found {len(items)} items and {len(times)} times, expected as many")
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | str):
            raise ValueError(f"key 'items': found {_shown(item)}, expected ids (integers or text)")
    last = 0
    for time in times:
        if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= LATEST_TIME:
            raise ValueError(
                f"key 'times': found {_shown(time)}, expected seconds since 1970 (milliseconds: divide by 1000)"
            )
        if time < last:
            raise ValueError(
                f"key 'times': found {time} after {last}, expected the oldest event first: sort the history"
            )
        last = time
    if isinstance(user, bool) or not isinstance(user, int | str | None):
        raise ValueError(f"key 'user': found {_shown(user)}, expected an integer or text")
    return [str(item) for item in items], [int(time) for time in times], None if user is None else str(user)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
