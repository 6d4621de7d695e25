"""Reads histories from a file, to recommend to users outside the training data or with newer events.

Each line is a JSON object, oldest event first:

    {"items": [1193, 661, 914], "times": [978300760, 978301968, 978302109], "request_time": 978303000, "user": "anna"}

`items` are ids of the training data set, `times` are seconds since 1970 or ISO 8601 dates, and `user` is optional
(the default is the line number). `times` may be missing for a model that reads no times. `request_time` is for models
with request time, and not before the last event. Features of events have keys of their own, see
`features/history_features.py`, whose reader is an argument here.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import EventArrays, EventColumns, Events, Integers
from datamodules.recommender.reading.column_choice import resembles_time
from datamodules.recommender.reading.content_type import BOM, detect_binary_format
from datamodules.recommender.reading.errors import InteractionError, preview_json
from engine.number_check import is_integer
from engine.timestamp import EXPECTED_TIME, to_seconds

LONGEST_LINE = 1 << 26
"""Bytes of a history, some millions of events."""

_WHITESPACE = " \t\r\n"  # of JSON; str.strip() also removes characters that JSON refuses
_EXPECTED = 'a JSON object such as {"items": [1193, 661], "times": [978300760, 978301968]} on each line'


class Histories(NamedTuple):
    """Rows of a file, in order, for `RankingDataset(events, examples, ..., held_out=False)`."""

    events: Events  # row r of the file is user r
    users: Sequence[str]  # user of each row
    unknown: int = 0  # number of events dropped because their item is not in the training data
    empty: Sequence[int] = ()  # lines (from 1) without a known item; their rows have length 0
    untimed: int | None = None  # first line (from 1) without times, whose events have time 0
    request_times: NDArray[np.int64] | None = None  # [rows] time of the request in seconds; None if a line has none
    undated: int | None = None  # first line (from 1) without a time of the request

    @property
    def examples(self) -> tuple[Integers, Integers]:
        """(users [M], ends [M]): all rows, each to its end."""
        return np.arange(len(self.users)), self.events.offsets[1:]

    @property
    def report(self) -> str:
        """Sentence on the dropped events; empty if there are none."""
        if not self.unknown and not self.empty:
            return ""
        total = self.unknown + len(self.events.items)
        text = f"{self.unknown} of {total} events were dropped: the model does not know their items."
        if self.empty:
            lines = ", ".join(map(str, self.empty[:10])) + (", ..." if len(self.empty) > 10 else "")
            text += (
                f" {len(self.empty)} of {len(self.users)} histories have no event (lines {lines}): they get the most"
                " popular items, marked as a fallback."
            )
        return text


class FeatureReader(Protocol):
    """Collects the features of the events of all lines. Implemented by HistoryFeatures."""

    @property
    def keys(self) -> Sequence[str]:
        """Keys of a line that are features."""

    def add(self, row: Mapping[str, Any], events: int, kept: Sequence[int]) -> None:
        """Add the events of a line at the indices `kept`; raise ValueError if a value is invalid."""

    def columns(self, events: int) -> EventColumns:
        """Return the features of all events that were added."""


def read_histories(path: Path, item_ids: Sequence[object], features: FeatureReader | None = None) -> Histories:
    """Read a file of histories.

    An event with an item outside `item_ids` is dropped and counted, and the rest of its history is kept. A history
    without known items remains as a row of length 0, so the output has a row for each line; such a row gets no
    recommendations.

    Args:
        path: a JSONL file, see the module's docstring.
        item_ids: [num_items], ids in the data set of item 1, 2, ...; ids are compared as text (`7` is `"7"`).
        features: reads the features of events from further keys; None: events have none.

    Raises:
        InteractionError: the file is not JSONL, or a line is invalid. The message names file and line, the value found
            and the expected value.
    """
    path = Path(path)
    if not path.is_file():  # a pipe is read once, and the file is opened twice
        raise InteractionError(f"{path}: found no regular file, expected {_EXPECTED}")
    if foreign := detect_binary_format(path):
        raise InteractionError(f"{path}: {foreign}")
    number_of = {str(item): number for number, item in enumerate(item_ids, start=1)}
    items, times, offsets, requests = array("i"), array("q"), array("q", [0]), array("q")
    users: list[str] = []
    empty: list[int] = []
    unknown, untimed, undated = 0, None, None
    with path.open("rb") as file:
        # Bounded, because a file without line ends would be read into memory as a single line.
        for line, text in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            if not text.strip():
                continue
            try:
                row = _object(text.removeprefix(BOM) if line == 1 else text)
                history = _parse(row, () if features is None else features.keys)
                known_indices = [index for index, item in enumerate(history.items) if item in number_of]
                if features is not None:
                    features.add(row, len(history.items), known_indices)
            except ValueError as error:
                raise InteractionError(f"{path}: line {line}: {error}") from error
            untimed = untimed or (line if history.times is None else None)
            requests.append(0 if history.request_time is None else history.request_time)
            undated = undated or (line if history.request_time is None else None)
            items.extend(number_of[history.items[index]] for index in known_indices)
            times.extend(0 if history.times is None else history.times[index] for index in known_indices)
            offsets.append(len(items))
            users.append(str(line) if history.user is None else history.user)
            unknown += len(history.items) - len(known_indices)
            if not known_indices:
                empty.append(line)
    if not users:
        raise InteractionError(f"{path}: found no line, expected {_EXPECTED}")
    columns = np.array(offsets, np.int64), np.array(items, np.int32), np.array(times, np.int64)
    event_features = None if features is None else features.columns(len(items))
    events = EventArrays(*columns, len(item_ids), event_features)
    request_times = np.array(requests, np.int64) if undated is None else None
    return Histories(
        events=events,
        users=users,
        unknown=unknown,
        empty=empty,
        untimed=untimed,
        request_times=request_times,
        undated=undated,
    )


class _History(NamedTuple):
    """A line of the file, checked: the history of a user."""

    items: list[str]  # ids, as text
    times: list[int] | None  # seconds since 1970, of each item
    request_time: int | None
    user: str | None


def _parse(row: Mapping[str, Any], features: Sequence[str]) -> _History:
    """Return the history of a line; raise ValueError if it is invalid."""
    if "at" in row and "at" not in features:
        raise ValueError("found the key 'at', which is now 'request_time': rename it in every line")
    for key in ("items", "times"):
        if key in row and not isinstance(row[key], list):
            raise ValueError(f"found {preview_json(row[key])}, expected {key!r}: a list")
    unread = [key for key in row if key not in ("items", "times", "user", *features) and resembles_time(key)]
    if "items" not in row or ("times" not in row and unread):
        missing = "times" if "items" in row else "items"
        raise ValueError(f"found only the keys {preview_json(sorted(row))}, expected {missing!r}: a list")
    items, user = row["items"], row.get("user")
    for item in items:
        if not isinstance(item, str) and not is_integer(item):
            raise ValueError(f"key 'items': found {preview_json(item)}, expected ids (integers or text)")
    if not isinstance(user, str | None) and not is_integer(user):
        raise ValueError(f"key 'user': found {preview_json(user)}, expected an integer or text")
    if isinstance(user, str) and any("\ud800" <= character <= "\udfff" for character in user):
        raise ValueError(f"key 'user': found {ascii(user)[:60]}, expected text (half of a surrogate pair is none)")
    times = _parse_event_times(row["times"], len(items)) if "times" in row else None
    request_time = _request_time(row["request_time"], row["times"]) if "request_time" in row else None
    return _History([str(item) for item in items], times, request_time, None if user is None else str(user))


def _object(text: bytes) -> Mapping[str, Any]:
    if len(text) >= LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE >> 20} MiB, expected {_EXPECTED}")
    try:
        row = json.loads(text.decode().strip(_WHITESPACE), object_pairs_hook=_each_key_once)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is not utf-8; convert the file to UTF-8") from error
    except RecursionError:
        raise ValueError(f"found JSON that is nested too deeply, expected {_EXPECTED}") from None
    except json.JSONDecodeError as error:
        found = text.decode().strip()
        found = found if len(found) <= 60 else found[:57] + "..."
        raise ValueError(f"found {found!r} (column {error.colno}: {error.msg}), expected {_EXPECTED}") from error
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise ValueError(f"found an integer of more than 4,300 digits, expected {_EXPECTED}") from error
    if not isinstance(row, Mapping):
        raise ValueError(f"found {preview_json(row)}, expected an object: {_EXPECTED}")
    return row


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"found the key {preview_json(max(keys, key=keys.count))} twice, expected each key once")
    return row


def _parse_event_times(times: list[Any], expected: int) -> list[int]:
    if len(times) != expected:
        raise ValueError(f"found {expected} items and {len(times)} times, expected as many")
    seconds: list[int] = []
    last: float = 0
    for time in times:
        value = _moment("times", time)
        if value < last:
            raise ValueError(
                f"key 'times': found {preview_json(time)} after {last}, expected the oldest event first: sort the "
                "history"
            )
        last = value
        seconds.append(int(value))
    return seconds


def _request_time(time: Any, times: list[Any]) -> int:
    value = _moment("request_time", time)
    if times and value < _moment("times", times[-1]):
        raise ValueError(
            f"key 'request_time': found {preview_json(time)}, earlier than the last of 'times', "
            f"{preview_json(times[-1])}; expected the time of the request, which comes after the events"
        )
    return int(value)


def _moment(key: str, time: Any) -> float:
    """Return a time in seconds since 1970; raise ValueError if it is invalid."""
    value = to_seconds(time)
    if value is None:
        raise ValueError(f"key {key!r}: found {preview_json(time)}, expected {EXPECTED_TIME}")
    return value
