"""Every log record becomes one line of strict JSON."""

import json
import logging
import sys

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from engine.telemetry.json_formatter import MAX_TEXT_LENGTH, JsonFormatter
from engine.telemetry.log_events import EVENTS, event
from engine.telemetry.startup_log_buffer import StartupLogBuffer, replay_startup_log
from tests.support.outputs.log_lines import SCHEMA, log_lines


def record(message, *args, level=logging.INFO, **extra):
    record = logging.LogRecord("lockstep", level, __file__, 1, message, args, extra.pop("exc_info", None))
    record.__dict__.update(extra)
    return record


def written(record, formatter=None):
    text = (formatter or JsonFormatter("a", 3, lambda: 7, local_rank=1)).format(record)
    assert "\n" not in text
    (line,) = log_lines(text)
    return line


def test_a_line_has_the_keys_of_the_schema():
    slow = record("rank %d is slow", 1, level=logging.WARNING, **event("disk_full", path="x", reason="full"))
    slow.created = 0.25
    assert written(slow) == {
        "time": "1970-01-01T00:00:00.250+00:00",
        "run": "a",
        "rank": 3,
        "process": 3,
        "local_rank": 1,
        "step": 7,
        "level": "warning",
        "message": "rank 1 is slow",
        "fields": {"event": "disk_full", "path": "x", "reason": "full"},
    }
    fields = {"path": "x", "reason": "full"}
    line = written(record("x", **event("disk_full", **fields)), JsonFormatter(command="test"))
    assert line["fields"] == {"event": "disk_full", "command": "test", **fields}
    line = written(record("begin"), JsonFormatter(command="fit"))
    assert (line["run"], line["rank"], line["local_rank"], line["step"]) == (None, 0, None, None)
    assert line["fields"] == {}


def test_any_message_is_one_line_of_strict_json():
    message = 'first\nsecond\r\x1b[31m\x00 "quoted" \ud800 \u2028 列表'
    fields = {
        "train/loss": float("nan"),
        "train/gradient_norm": np.float32("inf"),
        "scale": torch.tensor(0.5),
        "count": np.int64(3),
        "path": SCHEMA,
        "many": (1, {2: float("-inf")}),
        "none": None,
        "right": True,
    }
    line = written(record("%s", message, fields=fields))
    assert line["message"] == message
    found = line["fields"]
    assert (found["train/loss"], found["train/gradient_norm"], found["scale"], found["count"]) == (None, None, 0.5, 3)
    assert found["many"] == [1, {"2": None}]
    assert found["none"] is None
    assert found["right"] is True
    assert written(record("x", fields={"device": torch.device("cpu")}))["fields"] == {"device": "cpu"}


def test_a_long_text_is_cut():
    line = written(record("x" * 1_000_000))
    assert len(line["message"]) < MAX_TEXT_LENGTH + 50
    assert line["message"].endswith("... (1,000,000 characters)")


def test_an_errors_traceback_is_a_field():
    try:
        raise ValueError("no such row")
    except ValueError:
        line = written(record("failed", level=logging.ERROR, exc_info=sys.exc_info()))
    assert line["fields"]["traceback"].startswith("Traceback")
    assert "no such row" in line["fields"]["traceback"]


def test_the_schema_has_every_event_and_refuses_an_unknown_key():
    Draft202012Validator.check_schema(SCHEMA)
    fields = SCHEMA["properties"]["fields"]
    assert fields["properties"]["event"]["enum"] == list(EVENTS)
    named = {rule["if"]["properties"]["event"]["const"] for rule in fields["allOf"]}
    assert named == set(EVENTS)
    good = json.loads(JsonFormatter("a").format(record("x")))
    log_lines(json.dumps(good))
    for change in (
        {"step": -1},
        {"rank": None},
        {"level": "notice"},
        {"more": 1},
        {"time": "2026-01-01 00:00:00"},
        {"fields": {"event": "unknown"}},
        {"fields": {"event": "straggler"}},
        {"fields": {"train/loss": "NaN"}},
    ):
        with pytest.raises(AssertionError):
            log_lines(json.dumps(good | change))


def test_early_records_reach_later_handlers():
    log, received = logging.Logger("early"), []

    class Late(logging.Handler):
        def emit(self, record):
            received.append(record.getMessage())

    log.addHandler(StartupLogBuffer())
    log.debug("a detail")
    log.warning("passing over last.ckpt")
    late = Late(logging.INFO)
    replay_startup_log(log, late)
    assert received == ["passing over last.ckpt"]
