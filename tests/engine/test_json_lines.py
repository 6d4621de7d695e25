"""A line of the log is strict JSON whatever is said."""

import json
import logging
import sys

import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator

from engine.early_lines import EarlyLines, repeat_early_lines
from engine.events import EVENTS, event
from engine.json_lines import LONGEST, JsonLines
from tests.log_lines import SCHEMA, log_lines


def record(message, *args, level=logging.INFO, **extra):
    one = logging.LogRecord("lockstep", level, __file__, 1, message, args, extra.pop("exc_info", None))
    one.__dict__.update(extra)
    return one


def written(one, form=None):
    text = (form or JsonLines("a", 3, lambda: 7)).format(one)
    assert "\n" not in text
    (line,) = log_lines(text)
    return line


def test_a_line_says_who_when_and_what():
    one = record("process %d is slow", 1, level=logging.WARNING, **event("disk_full", path="x", reason="full"))
    one.created = 0.25
    assert written(one) == {
        "time": "1970-01-01T00:00:00.250+00:00", "run": "a", "process": 3, "step": 7, "level": "warning",
        "message": "process 1 is slow", "fields": {"event": "disk_full", "path": "x", "reason": "full"},
    }  # fmt: skip
    fields = {"path": "x", "reason": "full"}
    line = written(record("x", **event("disk_full", **fields)), JsonLines(command="test"))
    assert line["fields"] == {"event": "disk_full", "command": "test", **fields}
    line = written(record("begin"), JsonLines(command="fit"))
    assert (line["run"], line["process"], line["step"], line["fields"]) == (None, 0, None, {})


def test_whatever_is_said_is_one_line_of_strict_json():
    said = 'first\nsecond\r\x1b[31m\x00 "quoted" \ud800 \u2028 列表'
    fields = {
        "train/loss": float("nan"), "train/gradient_norm": np.float32("inf"), "scale": torch.tensor(0.5),
        "count": np.int64(3), "path": SCHEMA, "many": (1, {2: float("-inf")}), "none": None, "right": True,
    }  # fmt: skip
    line = written(record("%s", said, fields=fields))
    assert line["message"] == said
    found = line["fields"]
    assert (found["train/loss"], found["train/gradient_norm"], found["scale"], found["count"]) == (None, None, 0.5, 3)
    assert found["many"] == [1, {"2": None}] and found["none"] is None and found["right"] is True
    assert written(record("x", fields={"device": torch.device("cpu")}))["fields"] == {"device": "cpu"}


def test_a_long_text_is_cut_and_says_so():
    line = written(record("x" * 1_000_000))
    assert len(line["message"]) < LONGEST + 50 and line["message"].endswith("... (1,000,000 characters)")


def test_an_errors_traceback_is_a_field():
    try:
        raise ValueError("no such row")
    except ValueError:
        line = written(record("failed", level=logging.ERROR, exc_info=sys.exc_info()))
    assert line["fields"]["traceback"].startswith("Traceback") and "no such row" in line["fields"]["traceback"]


def test_the_schema_knows_every_event_and_refuses_what_is_not_promised():
    Draft202012Validator.check_schema(SCHEMA)
    fields = SCHEMA["properties"]["fields"]
    assert fields["properties"]["event"]["enum"] == list(EVENTS)
    told = {rule["if"]["properties"]["event"]["const"] for rule in fields["allOf"]}
    assert told == set(EVENTS)
    good = json.loads(JsonLines("a").format(record("x")))
    log_lines(json.dumps(good))
    for change in (
        {"step": -1}, {"process": None}, {"level": "notice"}, {"more": 1}, {"time": "2026-01-01 00:00:00"},
        {"fields": {"event": "unknown"}}, {"fields": {"event": "straggler"}}, {"fields": {"train/loss": "NaN"}},
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            log_lines(json.dumps(good | change))


def test_what_is_said_early_reaches_handlers_that_come_late():
    log, heard = logging.Logger("early"), []

    class Late(logging.Handler):
        def emit(self, one):
            heard.append(one.getMessage())

    log.addHandler(EarlyLines())
    log.debug("a detail")
    log.warning("passing over last.ckpt")
    late = Late(logging.INFO)
    repeat_early_lines(log, late)
    assert heard == ["passing over last.ckpt"]
