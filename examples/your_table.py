"""Bring your own table: recommend the next item of each user from a CSV file of interactions.

    python examples/your_table.py

writes data/examples/table.csv (600 shoppers, 80 items, user, item and time in each row), trains SASRec on it with
configs/recommender/your_data.yaml, tests it beside popularity and other simple baselines, and writes recommendations.
In these data, most shoppers buy the item that follows their last one, so a model of the order beats popularity. Takes a
minute on 2 cores. Replace the file by yours, or give the options that differ:

    python train.py fit --config configs/recommender/your_data.yaml --data.init_args.root mine.csv
"""

import csv
import random
import subprocess
import sys
import time
from pathlib import Path

TRAIN = Path(__file__).parents[1] / "train.py"
TABLE = Path("data/examples/table.csv")


def write_table(path: Path, users: int = 600, items: int = 80) -> None:
    """Write a table of purchases: three of four are the item after the last one, the others any item."""
    chance = random.Random(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["user", "item", "timestamp"])
        for user in range(users):
            item, when = chance.randrange(items), 1_700_000_000 + chance.randrange(10_000_000)
            for _ in range(chance.randint(8, 20)):
                table.writerow([f"shopper-{user}", f"item-{item}", when])
                item = (item + 1) % items if chance.random() < 0.75 else chance.randrange(items)
                when += chance.randrange(3_600, 500_000)


def lockstep(*arguments: str) -> None:
    """Run `python train.py ...`."""
    subprocess.run([sys.executable, str(TRAIN), *arguments], check=True)


if __name__ == "__main__":
    write_table(TABLE)
    name = f"your-table-{time.strftime('%m%d-%H%M%S')}"
    lockstep(
        "fit", "--config", "configs/recommender/your_data.yaml", "--run_name", name,
        "--data.init_args.root", str(TABLE), "--data.init_args.batch_size", "64", "--data.init_args.max_length", "20",
        "--model.init_args.base_batch_size", "64", "--model.init_args.warmup_steps", "20", "--trainer.max_epochs", "30",
        *sys.argv[1:],  # further options of `fit`, such as --trainer.max_steps 20
    )  # fmt: skip
    lockstep("test", "--run_name", name)
    lockstep("predict", "--run_name", name)
    print(f"try it: python train.py demo --run_name {name}")
