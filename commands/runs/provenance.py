"""Finds the training that a checkpoint comes from: its step, metrics, config and environment."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from commands.runs.run_directory import newest_config
from engine.io.json_records import parse_json
from engine.io.yaml_file import YamlFileError, read_yaml
from engine.number_check import is_number
from engine.system.installation import package_version

log = logging.getLogger("lockstep")

_OLDER = "unknown: the record is of an older version"


class TrainingProvenance(NamedTuple):
    """Training of a checkpoint; what is unknown is empty or None."""

    step: int
    epoch: int
    metrics: dict[str, float]
    """Metrics of the newest evaluation at this step with the run's settings, for `val` and for `test`."""
    excluded: dict[str, str]
    """Stages that were evaluated with changed settings only, and the changed keys."""
    config: dict[str, Any]
    environment: dict[str, Any]
    """Content of environment.json."""
    lockstep: str | None
    """Version that exports."""


def training_of(checkpoint: Path, content: Mapping[str, Any]) -> TrainingProvenance:
    """Read config, environment and metrics of the run that wrote a checkpoint.

    Args:
        checkpoint: its path; the files of the run are in its directory or in the parent of that.
        content: the loaded checkpoint.

    Raises:
        ValueError: the config or environment.json is corrupt; names the file.
        OSError: a file of the run cannot be read.
    """
    step, epoch = int(content.get("global_step", 0)), int(content.get("epoch", 0))
    # A checkpoint lies in the run directory, where Lightning saves it for SLURM, or in its folder `checkpoints`.
    config_path = next(filter(None, map(newest_config, checkpoint.parents[:2])), None)
    if config_path is None:
        log.warning("there is no run beside %s: the model card has no config and no metrics", checkpoint)
        return TrainingProvenance(
            step=step,
            epoch=epoch,
            metrics={},
            excluded={},
            config={},
            environment={},
            lockstep=package_version("lockstep"),
        )
    directory, config = config_path.parent, read_yaml(config_path)
    for name, section in (
        ("the file", config),
        ("trainer", config.get("trainer") if isinstance(config, dict) else None),
    ):
        if not isinstance(section, dict | None):
            raise YamlFileError(
                str(config_path), f"{name} is {type(section).__name__}, expected settings, KEY: VALUE", 1
            )
    metrics, excluded = _metrics(directory / "metrics.jsonl", step)
    environment = _environment(directory / "environment.json")
    return TrainingProvenance(
        step=step,
        epoch=epoch,
        metrics=metrics,
        excluded=excluded,
        config=config or {},
        environment=environment,
        lockstep=package_version("lockstep"),
    )


def _environment(path: Path) -> dict[str, Any]:
    """Return the content of environment.json; empty if there is none."""
    if not path.is_file():
        return {}
    try:
        content = parse_json(path.read_bytes())
        if not isinstance(content, dict) or not isinstance(content.get("packages"), dict | None):
            raise ValueError("found no object, or `packages` is none")
    except ValueError as error:
        raise ValueError(
            f"{path}: is not a record of the environment ({error}); delete it to export without"
        ) from error
    return content


def _metrics(path: Path, step: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return `TrainingProvenance.metrics` and `TrainingProvenance.excluded` of a step."""
    metrics: dict[str, dict[str, float]] = {}
    changed: dict[str, str] = {}
    if not path.is_file():
        return {}, {}
    skipped = 0
    with path.open("rb") as lines:
        for line in lines:
            stage = next((stage for stage in ("val", "test") if f'"{stage}/'.encode() in line), None)
            if stage is None:  # most lines are of training steps and need not be parsed
                continue
            try:
                record = parse_json(line)
            except ValueError:  # a killed process may leave a line incomplete
                record = None
            altered = record.get("altered", _OLDER) if isinstance(record, dict) else None
            if not isinstance(altered, str):
                skipped += 1
                continue
            if record.get("step") != step:
                continue
            changed[stage] = altered
            if not altered:
                values = {name: value for name, value in record.items() if name.startswith(f"{stage}/")}
                metrics[stage] = {name: value for name, value in values.items() if is_number(value)}
    if skipped:
        log.warning("%s: %d lines are not records of metrics and are ignored", path, skipped)
    excluded = {stage: keys for stage, keys in changed.items() if stage not in metrics}
    return metrics.get("val", {}) | metrics.get("test", {}), excluded
