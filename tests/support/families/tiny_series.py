"""Questions about series at their smallest: a config of a tiny model, and files of five foreign shapes."""

import json
import math
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.conftest import REPOSITORY

TINY_SERIES_MODEL = [
    "--config",
    str(REPOSITORY / "configs/temporal/quickstart_series.yaml"),
    "--model.init_args.encoder_size=8",
    "--model.init_args.feature_size=8",
    "--model.init_args.max_new_tokens=4",
    "--model.init_args.language_model.config.hidden_size=16",
    "--model.init_args.language_model.config.intermediate_size=32",
    "--model.init_args.language_model.config.num_hidden_layers=2",
    "--model.init_args.schedule=constant",
    "--data.init_args.batch_size=8",
    "--data.init_args.evaluation_batch_size=4",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]


def five_shapes(random: Random) -> list[dict[str, Any]]:
    """Two rates, negative values, gaps, irregular stamps in multiples of 10 s, and 5,000 steps; a record each."""
    wave = [round(math.sin(k / 3) - 2 + random.gauss(0, 0.1), 3) for k in range(60)]
    stamps = [0]
    for _ in range(39):
        stamps.append(stamps[-1] + random.choice((290, 300, 300, 310)))
    long = [round(k / 1000 + random.random(), 3) for k in range(5000)]
    slow = {"name": "flow", "unit": "l/s", "values": wave[::5], "step": 300}
    return [
        {
            "question": "Which is faster?",
            "series": [{"name": "load", "unit": "kW", "values": wave, "step": 60}, slow],
            "options": ["load", "flow"],
            "answer": "load",
            "kind": "rates",
        },
        {
            "question": "What is the last value?",
            "series": {"values": wave, "unit": "°C"},
            "answer": f"{wave[-1]} °C",
            "kind": "value",
        },
        {
            "question": "Are there gaps in <series>?",
            "series": [v if k % 4 else None for k, v in enumerate(wave)],
            "options": ["yes", "no"],
            "answer": "yes",
            "kind": "gaps",
        },
        {
            "question": "How long is a step?",
            "series": {"values": wave[:40], "times": stamps},
            "answer": "300 s",
            "kind": "rates",
        },
        {
            "question": "Describe it.",
            "series": {"name": "trend", "values": long, "step": 1},
            "answer": "it rises",
            "kind": "text",
        },
    ]


def write_series_folder(folder: Path, train: int = 20) -> list[str]:
    """Write train, validation and test files of the five shapes, and return the options that read them."""
    random = Random(0)
    folder.mkdir()
    for name, number in (("train", train), ("validation", 5), ("test", 10)):
        records = [record for _ in range(-(-number // 5)) for record in five_shapes(random)][:number]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    overlay = folder / "overlay.yaml"
    settings = {"path": str(folder), "patch_length": 50, "packed_length": None, "list_options": True}
    overlay.write_text(yaml.safe_dump({"data": {"class_path": "SeriesQuestions", "init_args": settings}}))
    return [*TINY_SERIES_MODEL[:2], "--config", str(overlay), *TINY_SERIES_MODEL[2:]]
