"""Tests the histories that `predict` reads: known and unknown items, times of requests, invalid lines."""

import json
import os

import numpy as np
import pytest

from datamodules.recommender.dataset import RankingDataset
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.predict_histories import read_histories
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import MicroBatchRequest

ITEM_IDS = np.array([50, 7, 1193])  # item 1 is 50


def write(tmp_path, *rows):
    path = tmp_path / "histories.jsonl"
    path.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    return path


def test_known_items_are_served_and_unknown_ones_counted(tmp_path):
    path = write(
        tmp_path,
        {"items": [7, "50", 8, 1193], "times": [10, 10, 20, 30.5], "user": "anna"},
        {"items": [1, 2], "times": [1, 2], "user": 44},
        b"",
        {"items": [], "times": []},
        {"items": [50], "times": [0]},
    )
    histories = read_histories(path, ITEM_IDS)
    assert histories.users == ["anna", "44", "4", "5"]
    assert histories.events.offsets.tolist() == [0, 3, 3, 3, 4]
    assert histories.events.items.tolist() == [2, 1, 3, 1]
    assert histories.events.times.tolist() == [10, 10, 30, 0]
    assert histories.unknown == 3
    assert histories.empty == [2, 4]
    assert "3 of 7 events were dropped" in histories.report
    assert "2 of 4 histories have no event (lines 2, 4)" in histories.report


def test_every_line_has_a_row_in_the_batches(tmp_path):
    path = write(tmp_path, {"items": ["x"], "times": [1]}, {"items": [7, 50, 7], "times": [10, 10, 40]})
    histories = read_histories(path, ITEM_IDS)
    scale = personal_time_scale(histories.events, histories.events.offsets[1:])
    data = RankingDataset(histories.events, histories.examples, max_length=2, time_scale=scale, held_out=False)
    batch = data[MicroBatchRequest(0, np.arange(2))]
    assert batch.users.tolist() == [0, 1]
    assert batch.history.lengths.tolist() == [0, 2]
    assert batch.history.items.tolist() == [[0, 0], [1, 2]]
    assert batch.history.times.tolist() == [[0, 0], [10, 40]]
    assert batch.history.time_scale.tolist() == [1, 30]
    assert set(batch.seen[1].tolist()) == {1, 2}
    assert batch.target.tolist() == [0, 0]


def test_times_of_requests_belong_to_all_lines_or_to_none(tmp_path):
    dated = [
        {"items": [7, 8], "times": [10, 20.5], "request_time": 20.5},
        {"items": [], "times": [], "request_time": 0},
        {"items": [8], "times": ["2014-07-23"], "request_time": "2014-07-24T01:00:00Z"},
    ]
    histories = read_histories(write(tmp_path, *dated), ITEM_IDS)
    assert histories.request_times.tolist() == [20, 0, 1_406_163_600]
    assert histories.undated is None
    for missing in range(3):
        rows = [
            {key: value for key, value in row.items() if key != "request_time" or number != missing}
            for number, row in enumerate(dated)
        ]
        histories = read_histories(write(tmp_path, *rows), ITEM_IDS)
        assert histories.request_times is None
        assert histories.undated == missing + 1


def test_a_file_of_strangers_still_gives_rows(tmp_path):
    histories = read_histories(write(tmp_path, {"items": ["x"], "times": [1]}), ITEM_IDS)
    data = RankingDataset(
        histories.events, histories.examples, max_length=2, time_scale=np.ones(1, np.int64), held_out=False
    )
    assert data[MicroBatchRequest(0, np.arange(1))].history.lengths.tolist() == [0]


def test_histories_without_a_dropped_event_report_nothing(tmp_path):
    assert read_histories(write(tmp_path, {"items": [7], "times": [1]}), ITEM_IDS).report == ""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b'{"items": [1]', r"line 2: found '{\"items\": \[1\]' \(column 14: Expecting"),
        (b"user_id,item_id,timestamp", "line 2: found 'user_id,item_id,timestamp' .*expected a JSON object such as"),
        (b"[" * 100_000, "line 2: found JSON that is nested too deeply"),
        (b'{"items": [' + b"[" * 900 + b"]" * 900 + b"]}", "line 2: (key 'items': found|found JSON that is nested)"),
        (b"9" * 5000, "line 2: found an integer of more than 4,300 digits"),
        (b'{"items": [1], "times": [1], "user": "\\ud800"}', "line 2: key 'user': found .*half of a surrogate pair"),
        (b'{"items": ["\xff"], "times": [1]}', "line 2: .*utf-8"),
        ([1], r"line 2: found \[1\], expected an object"),
        ({"times": [1]}, r"line 2: found only the keys \[\"times\"\], expected 'items': a list"),
        ({"items": [1], "time_ms": [1]}, r"line 2: found only the keys \[\"items\", \"time_ms\"\], expected 'times'"),
        ({"items": [1], "times": None}, "line 2: found null, expected 'times': a list"),
        ({"items": [1, 2], "times": ["2014-07-23", "2014-07-22T23:59:59Z"]}, 'line 2: .*found "2014.* after'),
        ({"items": "1", "times": [1]}, "line 2: found \"1\", expected 'items': a list"),
        ({"items": [1, 2], "times": [1]}, "line 2: found 2 items and 1 times"),
        ({"items": [1.5], "times": [1]}, "line 2: key 'items': found 1.5"),
        ({"items": [True], "times": [1]}, "line 2: key 'items': found true"),
        ({"items": [1], "times": ["1"]}, "line 2: key 'times': found \"1\""),
        ({"items": [1], "times": [-1]}, "line 2: key 'times': found -1"),
        ({"items": [1], "times": [float("nan")]}, "line 2: key 'times': found NaN"),
        ({"items": [1], "times": [978300760000]}, "line 2: key 'times': found 978300760000.*divide by 1000"),
        ({"items": [1, 2], "times": [5, 4]}, "line 2: key 'times': found 4 after 5"),
        (
            {"items": [1], "times": [5], "request_time": 4},
            "line 2: key 'request_time': found 4, earlier than the last of 'times', 5",
        ),
        (
            {"items": [9], "times": [5.5], "request_time": 5},
            "line 2: key 'request_time': found 5, earlier than the last of 'times', 5.5",
        ),
        (
            {"items": [1], "times": ["2014-07-23"], "request_time": "2014-07-22"},
            'line 2: key .request_time.: found "2014-07-22", earlier',
        ),
        (
            {"items": [1], "times": [1], "request_time": None},
            "line 2: key 'request_time': found null, expected seconds since 1970",
        ),
        (
            {"items": [1], "times": [1], "request_time": [5]},
            r"line 2: key 'request_time': found \[5\], expected seconds since 1970",
        ),
        (
            {"items": [1], "times": [1], "request_time": True},
            "line 2: key 'request_time': found true, expected seconds since 1970",
        ),
        (
            {"items": [1], "times": [1], "request_time": 978300760000},
            "line 2: key 'request_time': found 978300760000.*divide by 1000",
        ),
        (
            {"items": [1], "times": [1], "request_time": float("nan")},
            "line 2: key 'request_time': found NaN, expected seconds",
        ),
        (
            {"items": [1], "request_time": 5},
            r"line 2: found only the keys \[\"items\", \"request_time\"\], expected 'times': a list",
        ),
        ({"items": [1], "times": [5], "at": 6}, "line 2: found the key 'at', which is now 'request_time': rename it"),
        ({"items": [1], "times": [1], "user": [2]}, r"line 2: key 'user': found \[2\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, message):
    path = write(tmp_path, {"items": [7], "times": [1]}, row)
    with pytest.raises(ValueError, match=f"histories.jsonl: {message}"):
        read_histories(path, ITEM_IDS)


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="found no line, expected a JSON object"):
        read_histories(write(tmp_path), ITEM_IDS)


def test_a_pipe_or_a_folder_is_no_file_of_histories(tmp_path):
    """A pipe would be read twice: its first lines would be lost, or the second read would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(InteractionError, match="found no regular file, expected a JSON object such as"):
            read_histories(path, ["1"])
