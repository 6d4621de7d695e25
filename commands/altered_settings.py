"""Which settings of an evaluation are not its run's: figures of half the data are none of the checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from commands.run_folder import newest_config

_STAGES = {"validate": "val", "test": "test"}
_WITHOUT_INFLUENCE = {
    f"data.init_args.{name}"
    for name in (
        "batch_size", "batch_size_per_device", "micro_batch_size", "evaluation_batch_size",
        "num_workers", "worker_start", "worker_timeout",
    )
}  # fmt: skip
"""Figures do not depend on them."""


def altered_settings(command: str, config: str, folder: Path, checkpoint: str | None) -> str:
    """Compares with the config that the run was last trained with; what a training does is its own.

    Args:
        command: `fit`, `validate` or `test`; of another one there are no figures.
        config: the command's, as a run keeps it.
        folder: the run's.
        checkpoint: that is evaluated.

    Returns:
        Keys of the model, of the data and of the evaluation's limits, with commas between them: empty where all is the
        run's own. `config` where the run has none, `ckpt_path` where the checkpoint is another run's.
    """
    stage = _STAGES.get(command)
    if stage is None:
        return ""
    kept = newest_config(folder)
    if kept is None:
        return "config"
    own, now = (_settings(yaml.safe_load(text), stage) for text in (kept.read_text(encoding="utf-8"), config))
    # As they are written: 1 is one batch, 1.0 are all.
    altered = [key for key in sorted(own.keys() | now.keys()) if repr(own.get(key)) != repr(now.get(key))]
    if checkpoint is None or folder.resolve() not in Path(checkpoint).resolve().parents:
        altered.append("ckpt_path")
    return ", ".join(altered)


def _settings(config: dict[str, Any], stage: str) -> dict[str, Any]:
    trainer = config.get("trainer") or {}
    limits = {key: trainer.get(key) for key in (f"limit_{stage}_batches", "overfit_batches", "fast_dev_run")}
    chosen = {"model": config.get("model"), "data": config.get("data"), "trainer": limits}
    return {key: value for key, value in _flat(chosen) if key not in _WITHOUT_INFLUENCE}


def _flat(group: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in group.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
