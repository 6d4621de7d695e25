"""Measures the parts of the benchmark: whether the variants learn, how fast they train, how fast they evaluate."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine.trainings import write_interactions
from benchmarks.packages.driver_process import Command, Driver, DriverFailed
from benchmarks.packages.interactions import rows_of_epoch, write_ring
from benchmarks.packages.variants import SETTINGS, Variant
from benchmarks.turn_order import turn_order

Started = dict[Variant, Command]
Result = dict[str, Any]
"""Measurements of a part, ready for JSON: name, title, `variants` with their turns, `failed` with the errors."""

LEARNT = 0.9
"""NDCG@10 on the ring of items that only a correct variant can reach; guessing gives about 0.1."""


def learn(started: Started, repeats: int, num_users: int) -> Result:
    """Train each variant on interactions that can be learnt; does not measure speed."""
    with TemporaryDirectory() as folder:
        settings = {"interactions": str(write_ring(Path(folder))), "length": 20, "learning_rate": 0.005}
        result = _measure("learn", settings, started, 1, lambda variant: 1, warm_up=0)
    result["title"] = f"Does each learn? NDCG@10 after {SETTINGS['steps']} steps on a ring of 50 items, L 20"
    goals = [
        {
            "text": f"{variant['name']} reaches {LEARNT}",
            "found": variant["turns"][0]["ndcg"],
            "met": variant["turns"][0]["ndcg"] >= LEARNT,
        }
        for variant in result["sides"]
    ]
    return result | {"goals": goals}


def train(started: Started, repeats: int, num_users: int) -> Result:
    """Measure training steps, each variant with its own Trainer and loader."""
    with TemporaryDirectory() as folder:
        settings = {"interactions": str(write_interactions(Path(folder), num_users))}
        epoch = -(-num_users // SETTINGS["batch_size"])
        result = _measure("train", settings, started, repeats, lambda variant: variant.steps or epoch)
    for variant, measured in _pairs(started, result):
        rows, targets = rows_of_epoch(variant.prefixes, SETTINGS["length"])
        measured["epoch"] = {"rows": rows, "targets": targets}
    title = f"Training of SASRec, B 128, L 200, C 64, 2 blocks, {num_users:,} users with lengths as in ML-1M"
    return result | {"title": title, "goals": []}


def evaluate(started: Started, repeats: int, num_users: int) -> Result:
    """Measure the ranking of every user's last item against all others."""
    with TemporaryDirectory() as folder:
        settings = {"interactions": str(write_interactions(Path(folder), num_users)), "users": num_users}
        result = _measure("evaluate", settings, started, repeats, lambda variant: 1)
    title = f"Evaluation of SASRec: full ranking, NDCG@10, L 200, {num_users:,} users"
    return result | {"title": title, "goals": []}


PARTS: dict[str, Callable[[Started, int, int], Result]] = {"learn": learn, "train": train, "evaluate": evaluate}


def _measure(
    work: str,
    settings: dict[str, Any],
    started: Started,
    repeats: int,
    units: Callable[[Variant], int],
    warm_up: int = 1,
) -> Result:
    """Return alternating turns of every variant after `warm_up` turns, which are dropped; skip variants that fail."""
    turns: dict[Variant, list[dict[str, float]]] = {variant: [] for variant in started}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        running: dict[Variant, Driver] = {}
        for variant, command in started.items():
            folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
            try:
                running[variant] = stack.enter_context(Driver(command, {**SETTINGS, "work": work, **settings}, folder))
            except DriverFailed as error:
                failed[variant.name] = str(error)
        # Negative turns warm up: allocators, caches of files, and a package's lazy work.
        for turn in range(-warm_up, repeats):
            for variant, driver in turn_order(running.items(), turn):
                try:
                    result = driver.turn(units(variant))
                except DriverFailed as error:
                    failed[variant.name] = str(error)
                    # The others go on: a failed package must not cost the measurements of the rest.
                    del running[variant]
                    continue
                if turn >= 0:
                    turns[variant].append(result)
        variants = [
            {"name": variant.name, **driver.versions, "prefixes": variant.prefixes, "turns": turns[variant]}
            for variant, driver in running.items()
        ]
    return {"name": work, "sides": variants, "failed": failed}


def _pairs(started: Started, result: Result) -> list[tuple[Variant, dict[str, Any]]]:
    by_name = {variant.name: variant for variant in started}
    return [(by_name[measured["name"]], measured) for measured in result["sides"]]
