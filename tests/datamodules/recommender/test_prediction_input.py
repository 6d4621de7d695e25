"""Tests the time of the request: of the target in training and evaluation, given by the user in predict."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.prediction_input import parse_predict_request_time
from engine.data.samplers import MicroBatchRequest

USERS, EVENTS = 12, 6
YEAR = 365 * 86_400


def time(user: int, event: int) -> int:
    return 1_000_000_000 + 400 * user + [0, YEAR, YEAR + 100, YEAR + 500, 2 * YEAR, 2 * YEAR + 7][event]


LATEST = time(USERS - 1, EVENTS - 1)


@pytest.fixture
def make_data(tmp_path: Path) -> Callable[..., InteractionSequences]:
    """A table of 12 users with 6 events."""
    rows = [
        f"u{user},i{(user + 3 * event) % 8},{time(user, event)}" for user in range(USERS) for event in range(EVENTS)
    ]
    (tmp_path / "events.csv").write_text("user,item,timestamp\n" + "\n".join(rows) + "\n")

    def make(lines: list[dict[str, Any]] | None = None, **settings: Any) -> InteractionSequences:
        if lines is not None:
            (tmp_path / "people.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            settings["predict_histories"] = str(tmp_path / "people.jsonl")
        root = str(tmp_path / "events.csv")
        return InteractionSequences(root=root, min_item_interactions=1, max_length=3, batch_size=4, **settings)

    return make


def at_of(dataset: Any) -> list[int]:
    found: list[int] = dataset[MicroBatchRequest(0, np.arange(len(dataset)))].history.request_time.tolist()
    return found


def test_the_request_time_is_the_time_of_the_target(make_data: Callable[..., Any]) -> None:
    data = make_data()
    data.setup("fit")
    for dataset, target in ((data.train_set.rows, 3), (data.validation_set, 4), (data.test_set, 5)):
        assert at_of(dataset) == [time(user, target) for user in range(USERS)]


@pytest.mark.parametrize(
    ("predict_request_time", "expected"),
    [(None, LATEST), (LATEST, LATEST), (LATEST + 1.5, LATEST + 1), ("2040-01-01", 2_208_988_800)],
)
def test_users_of_the_data_are_asked_for_one_moment(
    make_data: Callable[..., Any], predict_request_time: float | str | None, expected: int
) -> None:
    data = make_data(predict_request_time=predict_request_time)
    data.setup("predict")
    data.require_request_times("the model")
    assert at_of(data.predict_set) == [expected] * USERS


def test_without_held_out_events_an_export_is_compared_at_the_latest_time(make_data: Callable[..., Any]) -> None:
    assert make_data(split="none").some_histories(5).history.request_time.tolist() == [LATEST] * 5


def test_a_moment_before_an_event_is_refused_with_the_user(make_data: Callable[..., Any]) -> None:
    data = make_data(predict_request_time=time(4, 5) - 1)
    times = time(4, 5)
    with pytest.raises(
        ValueError, match=rf"predict_request_time: found {times - 1}, and user u4 has .* at {times}; .*{LATEST}"
    ):
        data.setup("predict")


@pytest.mark.parametrize("wrong", ["yesterday", "2040-02-30", -1, 978_300_760_000, float("nan"), True])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(
        ValueError, match="data.init_args.predict_request_time: found .*, expected seconds since 1970 .*ISO"
    ):
        parse_predict_request_time(wrong)


def test_lines_of_a_file_have_their_own(make_data: Callable[..., Any]) -> None:
    lines = [
        {"items": ["i1", "x"], "times": [5, 60], "request_time": 61},
        {"items": ["i2"], "times": [7], "request_time": "1970-01-02"},
    ]
    data = make_data(lines)
    data.setup("predict")
    data.require_request_times("the model")
    assert at_of(data.predict_set) == [61, 86_400]


def test_a_line_without_is_refused_where_it_is_read(make_data: Callable[..., Any]) -> None:
    data = make_data([{"items": ["i1"], "times": [5], "request_time": 61}, {"items": ["i2"], "times": [7]}])
    data.setup("predict")
    data.require_times("another model")
    batch = data.predict_set[MicroBatchRequest(0, np.arange(2))]
    assert batch.history.request_time is None
    with pytest.raises(
        ValueError, match="people.jsonl: line 2: found no key 'request_time', and the model reads the time of"
    ):
        data.require_request_times("the model")


def test_one_moment_for_lines_with_their_own_is_refused(make_data: Callable[..., Any]) -> None:
    with pytest.raises(
        ValueError, match="predict_request_time: found 5, but each line of predict_histories has its own 'request_time'"
    ):
        make_data([{"items": ["i1"], "times": [5], "request_time": 61}], predict_request_time=5)
