"""Histories for `predict` of the recommender: JSON lines. The reference is plain_json."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_ITEMS = [*range(1, 40), "a", "b c", "é"]
_LATEST = 7_258_118_400


class Histories(Reader):
    """Rows of (user, items, times, time of the request); the last only if all rows have it."""

    def seeds(self) -> Sequence[Input]:
        plain = b'{"items": [1, 5, 9], "times": [978300760, 978301968, 978302109], "user": "anna"}\n'
        other = '{"items": ["a", "é", 3, 77], "times": [1, 1.5, 2, 3]}\n\n{"items": [], "times": [], "user": 7}\n'
        dated = (
            plain.replace(b'"user"', b'"request_time": 978302109, "user"')
            + b'{"items": [3], "times": [5.5], "request_time": 60.5}\n'
        )
        return [Input("histories.jsonl", plain * 3 + other.encode()), Input("requests.jsonl", dated * 2)]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(("items", "times", "request_time", "user", "at"))(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.recommender.reading.predict_histories import read_histories

        found = read_histories(path, _ITEMS)
        bounds = found.events.offsets.tolist()
        items, times = found.events.items.tolist(), found.events.times.tolist()
        requests = [None] * len(found.users) if found.request_times is None else found.request_times.tolist()
        return [
            (user, [str(_ITEMS[item - 1]) for item in items[begin:end]], times[begin:end], at)
            for user, begin, end, at in zip(found.users, bounds[:-1], bounds[1:], requests, strict=True)
        ]

    def reference(self, path: Path) -> Any:
        known, rows, all_dated = set(map(str, _ITEMS)), [], True
        for number, record in plain_json.lines(path.read_bytes()):
            try:
                items, user = record["items"], record.get("user")
                times = record.get("times", [0] * len(items))
                assert isinstance(items, list)
                assert isinstance(times, list)
                assert len(items) == len(times)
                assert all(type(item) in (int, str) for item in items)
                assert all(type(time) in (int, float) and 0 <= time <= _LATEST for time in times)
                assert times == sorted(times)
                assert type(user) in (int, str, type(None))
                at = record.get("request_time", _LATEST)
                assert "at" not in record, "the old name of the key request_time"
                assert "request_time" not in record or "times" in record
                assert type(at) in (int, float)
                assert 0 <= at <= _LATEST
                assert not times or at >= times[-1]
                all_dated = all_dated and "request_time" in record
            except (AssertionError, LookupError, TypeError, AttributeError) as error:
                raise InvalidInput(f"line {number} is no history") from error
            kept = [(str(item), int(time)) for item, time in zip(items, times, strict=True) if str(item) in known]
            name = str(number if user is None else user)
            rows.append((name, [item for item, _ in kept], [time for _, time in kept], int(at)))
        return rows if all_dated else [(*row[:3], None) for row in rows]


READERS = {"histories": Histories}
