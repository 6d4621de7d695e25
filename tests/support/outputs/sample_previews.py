"""Reads the previews of samples that a run has written."""

import json
from typing import Any

from callbacks.logging.sample_previews import preview_files
from tests.conftest import REPOSITORY, Run

DIGITS = [
    f"--config={REPOSITORY / 'configs/image_classifier/digits.yaml'}",
    "--model.init_args.width=8",
    "--trainer.accelerator=cpu",
    "--trainer.enable_progress_bar=false",
    "--trainer.max_epochs=1",
    "--trainer.check_val_every_n_epoch=1",
]


def previews_of(run: Run) -> dict[int, list[dict[str, Any]]]:
    """{step: examples} of the validation."""
    records = [json.loads(file.read_text(encoding="utf-8")) for _, file in preview_files(run.folder)]
    assert all(record["stage"] == "val" for record in records)
    return {record["step"]: record["examples"] for record in records}
