"""Builds the slider for the time of a request: times after the last event, at growing distances."""

from datetime import datetime, timezone

from commands.answers.answer_blocks import Slider, SliderStop

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DISTANCES = {
    "at the last event": 0,
    "1 minute after the last event": _MINUTE,
    "10 minutes after the last event": 10 * _MINUTE,
    "1 hour after the last event": _HOUR,
    "3 hours after the last event": 3 * _HOUR,
    "8 hours after the last event": 8 * _HOUR,
    "1 day after the last event": _DAY,
    "2 days after the last event": 2 * _DAY,
    "4 days after the last event": 4 * _DAY,
    "1 week after the last event": 7 * _DAY,
    "2 weeks after the last event": 14 * _DAY,
    "1 month after the last event": 30 * _DAY,
    "2 months after the last event": 60 * _DAY,
    "3 months after the last event": 91 * _DAY,
    "6 months after the last event": 182 * _DAY,
    "1 year after the last event": 365 * _DAY,
    "2 years after the last event": 730 * _DAY,
}
"""{label: seconds after the last event}. Models that read times see logarithms or sums of distances."""


def request_time_slider(field: str, last: int, at: int) -> Slider:
    """Return the slider of a request.

    Args:
        field: name of the field of the time.
        last: time of the last event, in seconds since 1970.
        at: time of the request.
    """
    labels = {last + seconds: label for label, seconds in _DISTANCES.items()}
    # The slider needs a stop for the time of this answer, even if it is none of the distances.
    labels.setdefault(at, f"{_distance(at - last)} after the last event")
    times = sorted(labels)
    stops = [SliderStop(_iso(time), f"{_iso(time).replace('T', ' ')} UTC, {labels[time]}") for time in times]
    return Slider("request time", "Time of the request", field, stops, times.index(at))


def _distance(seconds: int) -> str:
    for name, unit in (("days", _DAY), ("hours", _HOUR), ("minutes", _MINUTE)):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds} seconds"


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
