"""What a check has to say, and what a check is."""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

Status = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """One thing that was looked at."""

    check: str
    """What was looked at, in two or three words: "shared memory"."""

    status: Status
    """`fail`: a training will stop, hang or be wrong. `warn`: it will be slower, or may stop later. Else `ok`."""

    found: str
    """What is there, with figures and units."""

    why: str = ""
    """Why it matters (empty where all is well)."""

    remedy: str = ""
    """The command or the setting that mends it."""


class Check(NamedTuple):
    """Something to look at; its `examine` may raise or hang without the other checks suffering from it."""

    name: str
    examine: Callable[[], Iterable[Finding]]
    """Takes no arguments: what a check looks at is bound to it, so that a test can hand it something else."""

    seconds: float = 20.0
    """After that long without an end the check has failed."""

    late: Finding | None = None
    """What is then to be said; None: that something hangs."""

    give_up: Callable[[], None] = lambda: None
    """Is then called; takes away what the check has made."""
