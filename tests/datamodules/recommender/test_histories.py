import json

import numpy as np
import pytest

from datamodules.recommender.histories import read_histories
from datamodules.recommender.sequences import RankingExamples, personal_time_scale
from engine.sampling import Draw

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
    data = RankingExamples(histories.events, histories.examples, max_length=2, time_scale=scale, held_out=False)
    batch = data[Draw(0, np.arange(2))]
    assert batch.users.tolist() == [0, 1]
    assert batch.history.lengths.tolist() == [0, 2]
    assert batch.history.items.tolist() == [[0, 0], [1, 2]]
    assert batch.history.times.tolist() == [[0, 0], [10, 40]]
    assert batch.history.time_scale.tolist() == [1, 30]
    assert set(batch.seen[1].tolist()) == {1, 2}
    assert batch.target.tolist() == [0, 0]


def test_a_file_of_strangers_still_gives_rows(tmp_path):
    histories = read_histories(write(tmp_path, {"items": ["x"], "times": [1]}), ITEM_IDS)
    data = RankingExamples(
        histories.events, histories.examples, max_length=2, time_scale=np.ones(1, np.int64), held_out=False
    )
    assert data[Draw(0, np.arange(1))].history.lengths.tolist() == [0]


def test_nothing_dropped_is_nothing_to_report(tmp_path):
    assert read_histories(write(tmp_path, {"items": [7], "times": [1]}), ITEM_IDS).report == ""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b'{"items": [1]', "line 2: Expecting"),
        (b'{"items": ["\xff"], "times": [1]}', "line 2: .*utf-8"),
        ([1], r"line 2: found \[1\], expected an object"),
        ({"items": [1]}, r"line 2: found only the keys \['items'\], expected 'times': a list"),
        ({"items": "1", "times": [1]}, "line 2: found \"1\", expected 'items': a list"),
        ({"items": [1, 2], "times": [1]}, "line 2: found 2 items and 1 times"),
        ({"items": [1.5], "times": [1]}, "line 2: key 'items': found 1.5"),
        ({"items": [True], "times": [1]}, "line 2: key 'items': found true"),
        ({"items": [1], "times": ["1"]}, "line 2: key 'times': found \"1\""),
        ({"items": [1], "times": [-1]}, "line 2: key 'times': found -1"),
        ({"items": [1], "times": [float("nan")]}, "line 2: key 'times': found NaN"),
        ({"items": [1], "times": [978300760000]}, "line 2: key 'times': found 978300760000.*divide by 1000"),
        ({"items": [1, 2], "times": [5, 4]}, "line 2: key 'times': found 4 after 5"),
        ({"items": [1], "times": [1], "user": [2]}, r"line 2: key 'user': found \[2\]"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, message):
    path = write(tmp_path, {"items": [7], "times": [1]}, row)
    with pytest.raises(ValueError, match=f"histories.jsonl: {message}"):
        read_histories(path, ITEM_IDS)


def test_an_empty_file_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="found no line"):
        read_histories(write(tmp_path), ITEM_IDS)
