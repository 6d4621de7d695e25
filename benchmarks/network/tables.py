"""Builds tables of measurements between two machines."""

from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.environment import goals_reached, number, ratios, spread
from benchmarks.network.machines import BURST
from benchmarks.network.step_model import StepModel

TITLES = {
    "bandwidth": "Two machines of one core, by bandwidth",
    "delay": "Two machines of one core, by bandwidth and delay",
    "settings": "DDP's settings",
}


def table(result: dict[str, Any]) -> Table:
    """Return the table of any measured part."""
    return _settings(result) if result["name"] == "settings" else _networks(result)


def rate(bandwidth: float | None) -> str:
    """Format bits per second."""
    if bandwidth is None:
        return "no limit"
    return f"{bandwidth / 1e9:g} Gbit/s" if bandwidth >= 1e9 else f"{bandwidth / 1e6:g} Mbit/s"


def describe(model: StepModel) -> str:
    """Format the model as a formula."""
    network = f"{model.bytes / 1e6:.2f} MB / bandwidth"
    if model.waits:
        network += f" + {model.waits:.1f} x delay"
    if model.absorbed:
        network = f"({network} - {1e3 * model.absorbed:.1f} ms absorbed, at least 0)"
    return f"t = {1e3 * model.compute:.1f} ms + {network}"


def _networks(result: dict[str, Any]) -> Table:
    delayed = result["name"] == "delay"
    sheet = _sheet(f"{TITLES[result['name']]}; {result['gradient_bytes'] / 1e6:.2f} MB of gradients per step")
    sheet.add_column("bandwidth")
    headings = ["one way ms"] if delayed else []
    headings += ["ms per step", "efficiency", "by arithmetic", "model ms", "error", "sent MB per step"]
    for heading in headings:
        sheet.add_column(heading, justify="right", no_wrap=True)
    for row in result["rows"]:
        low, high = row["efficiency_bounds"]
        held_out = " *" if row["held_out"] else "  "
        sheet.add_row(
            rate(row["bandwidth"]),
            *([f"{1e3 * row['delay']:g}"] if delayed else []),
            spread([1e3 * seconds for seconds in row["seconds"]]),
            spread(row["efficiency"]),
            f"{low:.2f} to {high:.2f}",
            f"{1e3 * row['model_seconds']:.1f}",
            f"{row['model_error']:+.1%}{held_out}",
            f"{median(row['sent']) / 1e6:.2f}",
        )
    alone = spread([1e3 * seconds for seconds in result["alone"]])
    model = StepModel(**result["model"])
    absorbed = (
        "absorbed: communication that does not lengthen the step, because it overlaps with computation or is part of "
        f"the {1e3 * model.compute:.1f} ms of an unlimited network."
    )
    burst = (
        f"limit: an idle machine sends {BURST / 1e3:.0f} kB at once ({BURST / result['gradient_bytes']:.1%} of the "
        "gradients), or 0.2 ms of a fast link, so a step may be too short by as much."
    )
    cable = (
        "the cable is a third process on the same two cores: its CPU time is in the step of two machines, and not in "
        "that of a single machine."
    )
    sheet.caption = "\n".join(
        [
            f"one machine alone: {alone} ms per step. efficiency: samples per second of two over twice those of one.",
            "by arithmetic: from the step of a single machine and the bytes, without overlap to the most that the "
            "backward pass can hide.",
            f"model: {describe(model)}; fitted to rows without *, tested on rows with *.",
            *([absorbed] if model.absorbed else []),
            burst,
            *([cable] if delayed else []),
            f"sent: {result['sent_over_ring']:.3f} times the 2 (n-1)/n x gradients of the ring (headers, counters, "
            "heartbeats).",
            goals_reached(result["goals"]),
        ]
    )
    return sheet


def _settings(result: dict[str, Any]) -> Table:
    sheet = _sheet(
        f"{TITLES['settings']} at {rate(result['bandwidth'])}; two machines, "
        f"{result['gradient_bytes'] / 1e6:.2f} MB of gradients per step"
    )
    sheet.add_column("")
    for heading in ("ms per step", "times as fast", "sent MB per step"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    base = result["rows"][0]
    for row in result["rows"]:
        sheet.add_row(
            row["name"],
            spread([1e3 * seconds for seconds in row["seconds"]]),
            "" if row is base else spread(ratios(base["seconds"], row["seconds"])),
            number(median(row["sent"]) / 1e6),
        )
    sheet.caption = goals_reached(result["goals"])
    return sheet


def _sheet(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="none",
    )
