"""Measures the sizes of each part in turns, and prints them as a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.environment import number, spread
from benchmarks.growth.conversion import conversion_makers
from benchmarks.growth.ranking import ITEMS as RANKED_ITEMS
from benchmarks.growth.ranking import ranking
from benchmarks.growth.steps import item_step, length_step, row_step
from benchmarks.growth.users import user_makers
from benchmarks.recommender.measure import Maker, take_turns
from lightning_modules.recommender.networks.attention.kinds import Attention

LENGTHS = (50, 100, 200, 500, 1000)
ITEMS = (3_000, 30_000, 300_000, 1_000_000)
_MAX_ITEMS = 10_000_000
"""Items of a further variant that is trained by rows; the dense optimizer would take 10 GB and minutes."""
_ALL_ITEMS = 30_000
"""Largest number of items for which all scores of every event are computed; more would need gigabytes."""

_TITLES = {
    "length": ("Training by the length of histories, 16 per step, C 64, 2 blocks", "event"),
    "items": ("Training by the number of items, SASRec, 32 histories of 50 events per step, 128 negatives", "event"),
    "ranking": ("Ranking all items in blocks of 256 MB, SASRec, 32 users of 50 events, C 64", "user"),
    "users": ("By the number of users, SASRec, 20 events each, 3,416 items, C 64, 2 blocks", "user"),
    "conversion": ("Making a store of a Parquet file", "row"),
}


def measure(part: str, repeats: int, rows: list[int]) -> dict[str, Any]:
    """Return, for each size, seconds per event or row of each turn and peak bytes without libraries."""
    title, unit = _TITLES[part]
    with _makers(part, rows) as makers:
        measured = take_turns(makers, repeats)
    variants = [
        {
            "name": name,
            "cpu": [turn.cpu for turn in variant.turns],
            "wall": [turn.wall for turn in variant.turns],
            # Tables are allocated when a variant is prepared, and their size is what this benchmark is about.
            "memory": variant.prepared + variant.memory,
        }
        for name, variant in measured.items()
    ]
    return {"name": part, "title": title, "unit": unit, "sides": variants}


@contextmanager
def _makers(part: str, rows: list[int]) -> Iterator[dict[str, Maker]]:
    if part == "users":
        with user_makers() as makers:
            yield makers
    elif part == "conversion":
        with conversion_makers(rows) as makers:
            yield makers
    else:
        yield _steps(part)


def _steps(part: str) -> dict[str, Maker]:
    if part == "length":
        models: dict[Attention, str] = {"standard": "SASRec", "time_interval": "TiSASRec"}
        return {
            f"{name}, L {length:,}": partial(length_step, attention, length)
            for attention, name in models.items()
            for length in LENGTHS
        }
    if part == "ranking":
        return {f"rank and best 10, {items:,} items": partial(ranking, items) for items in RANKED_ITEMS}
    # The same steps trained densely and by rows: a dense step goes over the whole table.
    sampled = {f"dense, {items:,} items": partial(row_step, "dense", items) for items in ITEMS}
    by_rows = {
        f"{name}, {items:,} items": partial(row_step, name, items)
        for name in ("rowwise_adagrad", "lazy_adamw")
        for items in (*ITEMS, *([_MAX_ITEMS] if name == "rowwise_adagrad" else []))
    }
    every = {
        f"all items' scores, {items:,} items": partial(item_step, "cross_entropy", items)
        for items in ITEMS
        if items <= _ALL_ITEMS
    }
    return {**sampled, **by_rows, **every}


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per size."""
    sheet = Table(box=box.SIMPLE_HEAD, title=found["title"], title_justify="left", title_style="bold")
    sheet.add_column("")
    unit = found["unit"]
    # Per unit and not per step: a flat column means that the cost does not grow with the size.
    for heading in (f"CPU us for one {unit}", f"wall us for one {unit}", f"{unit}s per second", "peak memory*"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for variant in found["sides"]:
        cpu, wall = ([1e6 * seconds for seconds in variant[clock]] for clock in ("cpu", "wall"))
        rate = number(1 / median(variant["wall"]))
        sheet.add_row(variant["name"], spread(cpu), spread(wall), rate, f"{variant['memory'] / 2**20:,.0f} MiB")
    sheet.caption = "* of the process, tables and stores included, above what its libraries take"
    sheet.caption_justify = "left"
    return sheet
