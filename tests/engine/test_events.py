import logging

import pytest

from engine.events import EVENTS, event, event_of


def test_a_line_tells_of_an_event_and_keeps_its_fields(caplog):
    log = logging.getLogger("test_events")
    log.warning("the step is left out", extra=event("gradients_not_finite", skipped=3))
    log.warning("nothing has happened")
    told, plain = (event_of(record) for record in caplog.records)
    assert told == ("gradients_not_finite", {"skipped": 3})
    assert plain == (None, {})


def test_an_event_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="no event 'gradient_not_finite'; there are .*gradients_not_finite"):
        event("gradient_not_finite")


def test_names_are_fit_for_labels():
    assert all(name.isidentifier() and name == name.lower() for name in EVENTS)
