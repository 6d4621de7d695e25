"""Formats and parses the slots of templates: numbers, times and words."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Format
from datamodules.temporal.timelines.text.facts import Direction, Facts, Pace, StartTime

Pick = Callable[[int], int]
"""Function that chooses a number below n."""

Words = dict[Any, tuple[str, ...]]

NAMES: dict[Format, Words] = {
    Format.TINY: {"cpu_cores": ("cpu",), "cpu_mem_gb": ("mem",), "gpu_sm": ("sm",), "gpu_mem_gb": ("vram",)},
    Format.FULL: {
        "cpu_cores": ("available CPU core count", "CPU core availability", "number of free CPU cores"),
        "cpu_mem_gb": ("available CPU memory", "free system memory", "RAM availability"),
        "gpu_sm": ("available GPU SM share", "free GPU compute", "GPU SM availability"),
        "gpu_mem_gb": ("available GPU memory", "free GPU VRAM", "video memory availability"),
    },
}
DIRECTIONS: dict[Format, Words] = {
    Format.TINY: {
        Direction.RISING: ("increasing",),
        Direction.FALLING: ("decreasing",),
        Direction.STABLE: ("stable",),
    },
    Format.FULL: {
        Direction.RISING: ("rising", "increasing", "climbing", "growing"),
        Direction.FALLING: ("falling", "decreasing", "declining", "dropping"),
        Direction.STABLE: ("stable", "steady", "level"),
    },
}
PACES: Words = {
    Pace.FAST: ("sharply", "quickly"),
    Pace.MODERATE: ("moderately", "noticeably"),
    Pace.SLOW: ("slowly", "gradually"),
}
VERDICTS: dict[Format, Words] = {
    Format.TINY: {StartTime.NOW: ("now",), StartTime.LATER: ("later",), StartTime.NEVER: ("never",)},
    Format.FULL: {
        StartTime.NOW: ("yes, immediately", "yes, right away"),
        StartTime.LATER: ("not yet", "only later"),
        StartTime.NEVER: ("no, never", "no, not in this timeline"),
    },
}
_NUMBER = r"(-?\d{1,9}(?:\.\d{1,6})?)"


class Notation(NamedTuple):
    """Notation of the texts."""

    format: Format
    step_ms: int

    def number(self, value: float, channel: str) -> str:
        """Format a value: `42%`, `12 cores`, `3.5 GB`."""
        unit, decimals = self._unit(channel)
        return f"{value:.{decimals}f}{unit}"

    def span(self, steps: int) -> str:
        """Format a duration: `12 steps`, `1.2s`."""
        return f"{steps} steps" if self.format == Format.TINY else f"{self._format_seconds(steps)}s"

    def time(self, step: int) -> str:
        """Format a time: `step 12`, `t=1.2s`."""
        return f"step {step}" if self.format == Format.TINY else f"t={self._format_seconds(step)}s"

    def write(self, slot: str, facts: Facts, pick: Pick) -> str:
        """Format a slot of a template."""
        if slot in ("start", "end", "value", "capacity", "requirement"):
            return self.number(getattr(facts, slot), facts.channel)
        if slot == "time":
            assert facts.time is not None  # templates have slots for known facts only
            return self.time(facts.time)
        if slot == "times":
            assert facts.times is not None
            return ", ".join(map(self.time, facts.times))
        if slot in ("lasts", "steps"):
            return self.span(getattr(facts, slot))
        if slot == "readings":
            assert facts.times is not None and facts.values is not None
            return ", ".join(
                f"at {self.time(time)} is {self.number(value, facts.channel)}"
                for time, value in zip(facts.times, facts.values, strict=True)
            )
        words = self._words(slot)[getattr(facts, slot)]
        return words[pick(len(words))] if len(words) > 1 else words[0]

    def pattern(self, slot: str, channel: str) -> str:
        """Return a regular expression with one group that matches the output of `write`."""
        number = _NUMBER + re.escape(self._unit(channel)[0])
        time = (r"step " if self.format == Format.TINY else r"t=") + _NUMBER + ("" if self._steps else "s")
        if slot in ("start", "end", "value", "capacity", "requirement"):
            return number
        if slot == "time":
            return time
        if slot in ("lasts", "steps"):
            return _NUMBER + (" steps" if self._steps else "s")
        if slot == "times":
            return f"({_without_capturing(time)}(?:, {_without_capturing(time)})*)"
        if slot == "readings":
            reading = _without_capturing(f"at {time} is {number}")
            return f"({reading}(?:, {reading})*)"
        # Longest first, because a pattern takes the first alternative that matches.
        words = [word for words in self._words(slot).values() for word in words]
        return "(" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"

    def read(self, slot: str, text: str) -> dict[str, Any]:
        """Parse a group of `pattern`; the keys are the names of the facts."""
        if slot in ("start", "end", "value", "capacity", "requirement"):
            return {slot: float(text)}
        if slot in ("time", "lasts", "steps"):
            return {slot: self._step(text)}
        numbers = [found[0] for found in re.finditer(r"-?\d+(?:\.\d+)?", text)]
        if slot == "times":
            return {slot: tuple(map(self._step, numbers))}
        if slot == "readings":
            return {"times": tuple(map(self._step, numbers[::2])), "values": tuple(map(float, numbers[1::2]))}
        lowered = text.lower()
        meanings = (
            meaning for meaning, words in self._words(slot).items() if lowered in (word.lower() for word in words)
        )
        return {slot: next(meanings)}

    @property
    def _steps(self) -> bool:
        return self.format == Format.TINY

    def _words(self, slot: str) -> Words:
        tables = {"channel": NAMES, "direction": DIRECTIONS, "verdict": VERDICTS}
        return PACES if slot == "pace" else tables[slot][self.format]

    def _unit(self, channel: str) -> tuple[str, int]:
        if self.format == Format.TINY:
            return "%", 0
        definition = CHANNELS[KEYS.index(channel)]
        return definition.unit, definition.decimals

    def _format_seconds(self, steps: int) -> str:
        # The fewest decimals of a second that represent a step exactly, at most 3 (milliseconds).
        decimals = next((count for count in range(3) if self.step_ms * 10**count % 1000 == 0), 3)
        return f"{steps * self.step_ms / 1000:.{decimals}f}"

    def _step(self, text: str) -> float | int:
        """Parse a step; it may be fractional."""
        step = float(text) if self._steps else round(float(text) * 1000 / self.step_ms, 3)
        return int(step) if step.is_integer() else step


def _without_capturing(pattern: str) -> str:
    # Turns the groups of numbers into groups that do not capture, so that the outer group is the only one.
    return pattern.replace("(-?", "(?:-?")
