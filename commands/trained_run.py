"""What a run's files tell of the training that a checkpoint comes from."""

import json
import logging
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from commands.run_folder import newest_config

log = logging.getLogger("lockstep")


class Training(NamedTuple):
    """Of a checkpoint; what is not known is empty or None."""

    step: int
    epoch: int
    figures: dict[str, float]  # of the newest evaluation of this very step, one of `val` and one of `test`
    left_out: dict[str, str]  # `val` and `test`, if there are but evaluations with other settings: which are other
    config: dict[str, Any]
    environment: dict[str, Any]  # as in environment.json
    lockstep: str | None  # the version that exports


def training_of(checkpoint: Path, content: Mapping[str, Any]) -> Training:
    """
    Args:
        checkpoint: its path; the run's files are in its folder or in the one above.
        content: what it holds.
    """
    step = int(content.get("global_step", 0))
    folder = next((place for place in checkpoint.parents[:2] if newest_config(place) is not None), None)
    if folder is None:
        log.warning("WARNING: beside %s there is no run with its config and figures: the card has none", checkpoint)
        return Training(step, int(content.get("epoch", 0)), {}, {}, {}, {}, _own_version())
    config = yaml.safe_load(newest_config(folder).read_text(encoding="utf-8"))
    environment = folder / "environment.json"
    facts = json.loads(environment.read_text(encoding="utf-8")) if environment.is_file() else {}
    figures, left_out = _figures(folder / "metrics.jsonl", step)
    return Training(step, int(content.get("epoch", 0)), figures, left_out, config, facts, _own_version())


def _figures(path: Path, step: int) -> tuple[dict[str, float], dict[str, str]]:
    """Of each stage the newest evaluation at a step whose settings are the run's, and which were altered elsewhere."""
    found: dict[str, dict[str, float]] = {}
    altered: dict[str, str] = {}
    if not path.is_file():
        return {}, {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            stage = next((stage for stage in ("val", "test") if f'"{stage}/' in line), None)
            if stage is None:  # most lines are of training steps
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # torn when a process was killed
                continue
            if record.get("step") != step:
                continue
            altered[stage] = record.get("altered", "unknown: the record is of an older version")
            if not altered[stage]:
                values = {name: value for name, value in record.items() if name.startswith(f"{stage}/")}
                found[stage] = {name: value for name, value in values.items() if isinstance(value, int | float)}
    left_out = {stage: keys for stage, keys in altered.items() if stage not in found}
    return found.get("val", {}) | found.get("test", {}), left_out


def _own_version() -> str | None:
    try:
        return version("lockstep")
    except PackageNotFoundError:
        return None
