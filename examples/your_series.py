"""Bring your own series: questions about curves, in files of JSON lines.

    python examples/your_series.py

writes 800 curves with a question each into data/examples/series (does it rise, fall or stay?), trains the small model
of the quickstart of series on them, and tests it beside a model that sees no curve, which can only guess. Takes two
minutes on 2 cores. docs/temporal.md describes the records; with a folder of yours and a pretrained model:

    python train.py fit --config configs/temporal/your_series.yaml --data.init_args.path my_series
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

TRAIN = Path(__file__).parents[1] / "train.py"
FOLDER = Path("data/examples/series")
SLOPES = {"it rises": 1.0, "it falls": -1.0, "it stays": 0.0}


def record(chance: random.Random) -> dict[str, object]:
    """Return a curve with gaps, a question about it, and the answer."""
    answer, noise = chance.choice(list(SLOPES)), chance.uniform(0.5, 2)
    level, scale = chance.uniform(-50, 50), chance.choice((0.1, 1, 10))
    values = [
        None if chance.random() < 0.05 else round(level + scale * (SLOPES[answer] * step + chance.gauss(0, noise)), 3)
        for step in range(chance.randint(24, 48))
    ]
    series = {"name": "load", "unit": "kW", "values": values, "step": 60}
    return {"question": "What does it do?", "series": series, "options": list(SLOPES), "answer": answer}


def write_series(folder: Path) -> None:
    """Write the files of the splits, and a config that replaces the quickstart's data."""
    chance = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    for split, number in (("train", 600), ("validation", 100), ("test", 100)):
        lines = (json.dumps(record(chance)) for _ in range(number))
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"class_path": "SeriesQuestions", "init_args": {"path": str(folder)}}
    best = {"monitor": "val/right", "mode": "max"}
    config = json.dumps({"data": data, "best_checkpoint": best}, indent=2)  # JSON is YAML, too
    (folder.parent / "series.yaml").write_text(config, encoding="utf-8")


def lockstep(*arguments: str) -> None:
    """Run `python train.py ...`."""
    subprocess.run([sys.executable, str(TRAIN), *arguments], check=True)


if __name__ == "__main__":
    write_series(FOLDER)
    name = f"your-series-{time.strftime('%m%d-%H%M%S')}"
    lockstep(
        "fit", "--config", "configs/temporal/quickstart_series.yaml", "--config", "data/examples/series.yaml",
        "--run_name", name,
        *sys.argv[1:],  # further options of `fit`, such as --trainer.max_steps 20
    )  # fmt: skip
    lockstep("test", "--run_name", name)
    print(f"drop a CSV file with a column of values on the page of: python train.py demo --run_name {name}")
