"""Tables of what was measured between two machines."""

from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.network.machines import BURST
from benchmarks.network.step_model import StepModel
from benchmarks.surroundings import goals_reached, number, spread

TITLES = {
    "bandwidth": "Two machines of one core, by bandwidth",
    "delay": "Two machines of one core, by bandwidth and delay",
    "settings": "DDP's settings",
}


def table(result: dict[str, Any]) -> Table:
    """Of any measured part."""
    return _settings(result) if result["name"] == "settings" else _networks(result)


def rate(bandwidth: float | None) -> str:
    """Bits a second, for people."""
    if bandwidth is None:
        return "no limit"
    return f"{bandwidth / 1e9:g} Gbit/s" if bandwidth >= 1e9 else f"{bandwidth / 1e6:g} Mbit/s"


def describe(model: StepModel) -> str:
    """The model as a formula."""
    network = f"{model.bytes / 1e6:.2f} MB / bandwidth"
    if model.waits:
        network += f" + {model.waits:.1f} x delay"
    if model.absorbed:
        network = f"({network} - {1e3 * model.absorbed:.1f} ms absorbed, at least 0)"
    return f"t = {1e3 * model.compute:.1f} ms + {network}"


def _networks(result: dict[str, Any]) -> Table:
    delayed = result["name"] == "delay"
    sheet = _sheet(f"{TITLES[result['name']]}; {result['gradient_bytes'] / 1e6:.2f} MB of gradients a step")
    sheet.add_column("bandwidth")
    headings = ["one way ms"] if delayed else []
    headings += ["ms a step", "efficiency", "by arithmetic", "model ms", "off by", "sent MB a step"]
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
        "absorbed: time of the exchange that does not lengthen the step, which computes meanwhile, or has it in the "
        f"{1e3 * model.compute:.1f} ms of a free network already."
    )
    burst = (
        f"limit: a machine that was silent sends {BURST / 1e3:.0f} kB at once ({BURST / result['gradient_bytes']:.1%} "
        "of the gradients), or 0.2 ms of a fast link; a step is at most so much too short."
    )
    cable = (
        "the cable is a third process on the same two cores: its CPU time is in the step of two machines, and not in "
        "that of one."
    )
    sheet.caption = "\n".join(
        [
            f"one machine alone: {alone} ms a step. efficiency: samples a second of two over twice those of one.",
            "by arithmetic: from the step of one and the bytes; nothing of the communication hidden, to all that the "
            "backward pass can hide.",
            f"model: {describe(model)}; fitted to rows without *, held against those with *.",
            *([absorbed] if model.absorbed else []),
            burst,
            *([cable] if delayed else []),
            f"sent: {result['sent_over_ring']:.3f} times the 2 (n-1)/n x gradients of the ring (headers, votes, signs "
            "of life).",
            goals_reached(result["goals"]),
        ]
    )
    return sheet


def _settings(result: dict[str, Any]) -> Table:
    sheet = _sheet(
        f"{TITLES['settings']} at {rate(result['bandwidth'])}; two machines, "
        f"{result['gradient_bytes'] / 1e6:.2f} MB of gradients a step"
    )
    sheet.add_column("")
    for heading in ("ms a step", "times as fast", "sent MB a step"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    base = result["rows"][0]
    for row in result["rows"]:
        ratios = [theirs / ours for ours, theirs in zip(row["seconds"], base["seconds"], strict=True)]
        sheet.add_row(
            row["name"],
            spread([1e3 * seconds for seconds in row["seconds"]]),
            "" if row is base else spread(ratios),
            number(median(row["sent"]) / 1e6),
        )
    sheet.caption = goals_reached(result["goals"])
    return sheet


def _sheet(title: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", caption_justify="left",
        caption_style="none",
    )  # fmt: skip
