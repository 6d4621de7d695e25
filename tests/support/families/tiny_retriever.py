"""A PageRetriever at its smallest, on the documents of tiny_documents.py."""

from pathlib import Path
from typing import Any

import yaml

from tests.support.families.coloured_squares import LANGUAGE_MODEL, TOWER


def write_config(folder: Path, data: dict[str, Any] | None = None, **model: Any) -> list[str]:
    """The options of a run that takes a second."""
    config = {
        "model": {
            "class_path": "PageRetriever",
            "init_args": {
                "language_model": {"config": LANGUAGE_MODEL},
                "vision_tower": {"config": TOWER, "trainable": "full"},
                "learning_rate": 3e-3,
                "size": 16,
                **model,
            },
        },
        "data": {
            "class_path": "tests.support.families.tiny_documents.TinyDocuments",
            "init_args": {"task": "retrieve", "batch_size": 16, "evaluation_batch_size": 16, **(data or {})},
        },
        "trainer": {
            "max_steps": 4, "accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
        },
        "best_checkpoint": {"monitor": "val/mrr", "mode": "max"},
    }  # fmt: skip
    path = folder / "page_retriever.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["--config", str(path)]
