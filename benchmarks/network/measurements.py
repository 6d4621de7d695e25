"""Measures between two machines: steps by bandwidth, by delay, and with DDP's settings."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.network.machines import Machines, connected
from benchmarks.network.step_model import BACKWARD_SHARE, Observed, StepModel, fit, ring_bytes, step_seconds
from benchmarks.network.training import Alone, Measurement, Options, Together, gradient_bytes
from benchmarks.turn_order import turn_order

Result = dict[str, Any]
"""Measurements of a part, ready for JSON."""

GIGABIT, MEGABIT = 1e9, 1e6
WARM_UP, SETTLING = 20, 3
"""Steps before the first turn, and before each turn on another network, in which TCP adapts its window."""


class Network(NamedTuple):
    """Network between the machines."""

    bandwidth: float | None  # bits per second; None: no limit
    delay: float | None = None  # seconds one way; None: a cable without a delay
    held_out: bool = False
    """Whether the model is not fitted to this network, but must predict it."""

    def apply(self, machines: Machines) -> None:
        """Set the cable between the machines to this network."""
        machines.limit(self.bandwidth)
        if self.delay is not None:
            machines.delay(self.delay)

    def observed(self, seconds: float) -> Observed:
        """Return the observation of a step of so many seconds on this network."""
        return Observed(seconds, self.bandwidth or math.inf, self.delay or 0.0)


BANDWIDTHS = (
    Network(None),
    Network(10 * GIGABIT, held_out=True),
    Network(GIGABIT),
    Network(500 * MEGABIT, held_out=True),
    Network(300 * MEGABIT),
    Network(200 * MEGABIT, held_out=True),
    Network(100 * MEGABIT),
    Network(50 * MEGABIT, held_out=True),
)
DELAYS = (
    Network(500 * MEGABIT, 0.0),
    Network(500 * MEGABIT, 0.001, held_out=True),
    Network(500 * MEGABIT, 0.005),
    Network(200 * MEGABIT, 0.0),
    Network(200 * MEGABIT, 0.005, held_out=True),
    Network(200 * MEGABIT, 0.02),
)
SETTINGS: dict[str, Options] = {
    "as it is: fp32, buckets of 1 and 25 MiB": (),
    "ddp.compression bf16": ("--ddp.compression", "bf16"),
    "fp16, as on a GPU": ("--trainer.callbacks+", "benchmarks.network.fp16_gradients.Fp16Gradients"),
    "ddp.bucket_mb 1": ("--ddp.bucket_mb", "1"),
}
SETTINGS_AT = 200 * MEGABIT


def bandwidth(repeats: int, networks: Sequence[Network] = BANDWIDTHS, steps: int = 10) -> Result:
    """Measure steps of two machines at each bandwidth, beside steps of a single machine."""
    return _networks("bandwidth", repeats, networks, steps, delayed=False)


def delay(repeats: int, networks: Sequence[Network] = DELAYS, steps: int = 10) -> Result:
    """Measure steps of two machines at each delay of the frames."""
    return _networks("delay", repeats, networks, steps, delayed=True)


def _networks(name: str, repeats: int, networks: Sequence[Network], steps: int, delayed: bool) -> Result:
    with connected(delayed) as machines, TemporaryDirectory() as folder, ExitStack() as stack:
        alone = Alone(stack, WARM_UP)
        together = Together(stack, machines, Path(folder), 29511, WARM_UP)
        single: list[Measurement] = []
        turns: list[list[Measurement]] = [[] for _ in networks]
        # The order is fixed: each network is followed by steps that are not measured, in which TCP adapts.
        for _ in range(repeats):
            single.append(alone.turn(steps))
            for network, measured in zip(networks, turns, strict=True):
                network.apply(machines)
                together.turn(SETTLING)
                measured.append(together.turn(steps))
    rows = [
        {**network._asdict(), "seconds": [turn.seconds for turn in measured], "sent": [turn.sent for turn in measured]}
        for network, measured in zip(networks, turns, strict=True)
    ]
    return result(name, [turn.seconds for turn in single], rows, gradient_bytes())


def result(name: str, alone: list[float], rows: list[dict[str, Any]], gradients: int) -> Result:
    """Return the measurements with the model's prediction of each row, fitted to the medians of rows not held out.

    Args:
        name: name of the part.
        alone: seconds per step of a single machine, one per turn.
        rows: a Network's fields, `seconds` per step and bytes `sent` per step, one per turn.
        gradients: bytes of a step's gradients.
    """
    networks = [Network(row["bandwidth"], row["delay"], row["held_out"]) for row in rows]
    observed = [network.observed(median(row["seconds"])) for network, row in zip(networks, rows, strict=True)]
    fitted = [point for point, network in zip(observed, networks, strict=True) if not network.held_out]
    # Fitted to some networks and compared with the others: a model tested on its own points would always fit.
    model = fit(fitted)
    compute = median(alone)
    for row, point in zip(rows, observed, strict=True):
        row["efficiency"] = [one / two for one, two in zip(alone, row["seconds"], strict=True)]
        row["model_seconds"] = model.seconds(point.bandwidth, point.delay)
        row["model_error"] = row["model_seconds"] / point.seconds - 1
        row["efficiency_bounds"] = _bounds(compute, ring_bytes(gradients, 2), model, point)
    worst = max(abs(row["model_error"]) for row in rows if row["held_out"])
    text = "the model is at most 10 % off where it was not fitted"
    return {
        "name": name,
        "alone": alone,
        "rows": rows,
        "model": model._asdict(),
        "gradient_bytes": gradients,
        "sent_over_ring": median(sent for row in rows for sent in row["sent"]) / ring_bytes(gradients, 2),
        "goals": [{"text": text, "found": worst, "met": worst <= 0.1}],
    }


def _bounds(compute: float, sent: float, model: StepModel, point: Observed) -> tuple[float, float]:
    """Return bounds of the efficiency, computed from the step of a single machine.

    For the lower bound no communication is hidden; for the upper bound the backward pass hides as much as it can. The
    share of the delay is the model's.
    """
    communication = 8 * sent / point.bandwidth + model.waits * point.delay
    none, all_hidden = (compute / step_seconds(compute, communication, share) for share in (0.0, BACKWARD_SHARE))
    return none, all_hidden


def settings(repeats: int, variants: dict[str, Options] | None = None, steps: int = 10) -> Result:
    """Measure steps with DDP's settings on a slow network; each variant is a separate training of two machines."""
    variants = SETTINGS if variants is None else variants
    turns: dict[str, list[Measurement]] = {name: [] for name in variants}
    with connected() as machines, ExitStack() as stack:
        machines.limit(SETTINGS_AT)
        running = {}
        for port, (name, options) in enumerate(variants.items(), start=29511):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            running[name] = Together(stack, machines, folder, port, WARM_UP, options)
        for turn in range(repeats):
            for name, together in turn_order(running.items(), turn):
                together.turn(SETTLING)
                turns[name].append(together.turn(steps))
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "options": list(variants[name]),
            "seconds": [turn.seconds for turn in measured],
            "sent": [turn.sent for turn in measured],
        }
        for name, measured in turns.items()
    ]
    whole = median(rows[0]["sent"])
    goals = []
    for row in rows:
        if "16" in row["name"]:
            found = median(row["sent"]) / whole
            goals.append({"text": f"{row['name']}: half the bytes", "found": found, "met": 0.45 < found < 0.55})
    return {
        "name": "settings",
        "bandwidth": SETTINGS_AT,
        "rows": rows,
        "gradient_bytes": gradient_bytes(),
        "goals": goals,
    }
