"""Lists evaluation settings that differ from the config with which the run was trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands.runs.current_names import current_key, current_value
from commands.runs.run_directory import newest_config
from engine.io.yaml_file import parse_yaml, read_yaml

_STAGES = {"validate": "val", "test": "test"}
_IRRELEVANT_SETTINGS = {
    f"data.init_args.{name}"
    for name in (
        "batch_size", "batch_size_per_device", "micro_batch_size", "evaluation_batch_size",
        "num_workers", "worker_start", "worker_timeout", "prefetch_factor", "pin_memory", "persistent_workers",
    )
}  # fmt: skip
"""Settings on which metrics do not depend."""


def changed_evaluation_keys(command: str, config: str, directory: Path, checkpoint: str | None) -> str:
    """Compare the settings of an evaluation with the config that the run was last trained with.

    The keys are stored beside the metrics, because e.g. metrics of half the data do not describe the checkpoint.

    Args:
        command: `validate` or `test`; other commands compute no metrics to compare.
        config: text of the command's config, as a run keeps it.
        directory: the run directory.
        checkpoint: the checkpoint that is evaluated.

    Returns:
        Changed keys of the model, the data and the limits of the evaluation, separated by commas; empty if there are
        none. `config` if the run has no config, `ckpt_path` if the checkpoint is another run's.
    """
    stage = _STAGES.get(command)
    if stage is None:
        return ""
    training_config = newest_config(directory)
    if training_config is None:
        return "config"
    contents = read_yaml(training_config), parse_yaml(config, "config")
    trained, current = (_settings(content or {}, stage) for content in contents)
    # Compared as text: 1 is one batch, 1.0 is all batches.
    changed = [
        key for key in sorted(trained.keys() | current.keys()) if repr(trained.get(key)) != repr(current.get(key))
    ]
    if checkpoint is None or directory.resolve() not in Path(checkpoint).resolve().parents:
        changed.append("ckpt_path")
    return ", ".join(changed)


def _settings(config: dict[str, Any], stage: str) -> dict[str, Any]:
    trainer = config.get("trainer") or {}
    limits = {key: trainer.get(key) for key in (f"limit_{stage}_batches", "overfit_batches", "fast_dev_run")}
    sections = {"model": config.get("model"), "data": config.get("data"), "trainer": limits}
    return {key: value for key, value in _flatten(sections) if key not in _IRRELEVANT_SETTINGS}


def _flatten(group: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        key = current_key(f"{prefix}{name}")
        if isinstance(value, dict):
            yield from _flatten(value, f"{key}.")
        else:
            yield key, current_value(key, value)
