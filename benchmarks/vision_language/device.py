"""Tokens a second and MFU on one GPU: a model of the sizes of SigLIP-B/16 and Qwen2.5-0.5B, ours and a plain loop's.

All sides train the same packed rows in bf16; the tower is frozen. On a machine without a GPU a tiny model shows that it
runs; its figures mean nothing.
"""

from functools import partial
from statistics import median
from typing import Any

import torch
from rich import box
from rich.table import Table

from benchmarks.engine.turns import WARM_UP, Body, Turn, take_turns
from benchmarks.surroundings import number, spread
from benchmarks.vision_language.models import LARGE, TINY, Layout, Sizes, amounts_of_turns
from benchmarks.vision_language.trainings import ours, plain
from callbacks.peak_flops import peak_flops

_STEPS = 20  # of a turn
_WORKERS = 4
_PACKED = Layout(packed=True)


def figures(
    repeats: int, peak_tflops: float | None = None, sizes: Sizes | None = None, steps: int = _STEPS
) -> dict[str, Any]:
    """Of each side tokens a second and model FLOPs a second in each turn.

    Args:
        peak_tflops: of the device, for MFU; None looks it up.
        sizes: of the model; None: as large as is said above where there is a GPU.
    """
    gpu = torch.cuda.is_available()
    sizes = sizes or (LARGE if gpu else TINY)
    workers = _WORKERS if gpu else 0
    turns: dict[str, list[Turn]] = {}
    for compiled in (False, True) if gpu else (False,):
        # In pairs: the plain loop's scores of all tokens leave no room on the device for more.
        same = {"sizes": sizes, "layout": _PACKED, "compiled": compiled, "workers": workers}
        suffix = ", compiled" * compiled
        sides: dict[str, Body] = {
            "plain torch loop" + suffix: partial(plain, **same),
            "Lockstep" + suffix: partial(ours, precision="bf16-mixed", **same),
        }
        turns |= take_turns(sides, processes=dict.fromkeys(sides, 1), steps=steps, repeats=repeats)
    amounts = amounts_of_turns(sizes, _PACKED, repeats, steps, WARM_UP)
    rows = [
        {
            "name": name,
            "tokens_per_second": [
                held["tokens"] / (turn.wall * steps) for turn, held in zip(measured, amounts, strict=True)
            ],
            "flops_per_second": [
                held["flops"] / (turn.wall * steps) for turn, held in zip(measured, amounts, strict=True)
            ],
        }
        for name, measured in turns.items()
    ]
    device = torch.device("cuda" if gpu else "cpu")
    peak = peak_flops(device, "bf16-mixed") if peak_tflops is None else peak_tflops * 1e12
    return {
        "name": "device",
        "device": torch.cuda.get_device_name() if gpu else "no GPU, a tiny model",
        "peak": peak,
        "real": sum(held["tokens"] for held in amounts) / sum(held["positions"] for held in amounts),
        "sides": rows,
    }


def table(found: dict[str, Any]) -> Table:
    """A line a side; ratios to the plain loop above it are taken turn by turn."""
    title = f"{found['device']}, bf16, rows with {found['real']:.0%} real tokens"
    sheet = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    sheet.add_column("")
    for heading in ("tokens/s", "times as fast", "model TFLOP/s", "MFU"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    base = found["sides"][0]
    for side in found["sides"]:
        if side["name"].startswith("plain"):
            base = side
        pairs = zip(side["tokens_per_second"], base["tokens_per_second"], strict=True)
        rate = median(side["flops_per_second"])
        sheet.add_row(
            side["name"],
            spread(side["tokens_per_second"]),
            "" if side is base else spread([ours / theirs for ours, theirs in pairs]),
            number(rate / 1e12),
            "" if found["peak"] is None else f"{rate / found['peak']:.1%}",
        )
    return sheet
