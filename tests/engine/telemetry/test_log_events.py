"""Tests the records of log events: names and fields."""

import logging

import pytest

from engine.telemetry.log_events import EVENTS, event, event_of


def test_a_record_names_an_event_with_its_fields(caplog):
    log = logging.getLogger("test_events")
    log.warning("the step is skipped", extra=event("gradients_not_finite", skipped=3))
    log.warning("no event")
    named, plain = (event_of(record) for record in caplog.records)
    assert named == ("gradients_not_finite", {"skipped": 3})
    assert plain == (None, {})


def test_a_rank_has_its_old_name_too_until_0_3_0():
    assert event("straggler", rank=3)["fields"] == {"rank": 3, "process": 3}


def test_an_unknown_event_is_refused():
    with pytest.raises(ValueError, match="no event 'gradient_not_finite'; there are .*gradients_not_finite"):
        event("gradient_not_finite")


def test_names_are_valid_labels():
    assert all(name.isidentifier() and name == name.lower() for name in EVENTS)
