"""Writes the record of a run as training leaves it, without training."""

import base64
import json
import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

CONFIG = """\
# lightning.pytorch==2.6.6
seed_everything: {seed}
trainer:
  max_epochs: 4
  gradient_clip_val: 1.0
model:
  class_path: lightning_modules.recommender.module.SequentialRecommender
  init_args:
    dropout: {dropout}
    betas:
    - 0.9
    - 0.98
data:
  class_path: datamodules.recommender.datamodule.InteractionSequences
best_checkpoint:
  monitor: val/ndcg@10
  mode: max
"""

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC")


def instant(second: float) -> str:
    return (BEGAN + timedelta(seconds=second)).isoformat(timespec="milliseconds")


class Recorded:
    """A folder that fills as a run's does; a second is a step."""

    def __init__(self, folder: Path, seed: int = 1, dropout: float = 0.1) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(CONFIG.format(seed=seed, dropout=dropout))
        packages = {"torch": "2.13.0"}
        facts = {"precision": "32-true", "device": "cpu", "processes": 2, "packages": packages, "commit": "abc"}
        (folder / "environment.json").write_text(json.dumps(facts))
        (folder / "metrics.jsonl").touch()

    def metrics(self, step: int, second: float | None = None, **metrics: float | str) -> None:
        """`train__loss=1.0` is `train/loss`; `altered` stays as it is."""
        named = {name.replace("__", "/").replace("_at_", "@"): value for name, value in metrics.items()}
        self.write(
            "metrics.jsonl",
            {
                "time": instant(step if second is None else second),
                "run": self.folder.name,
                "rank": 0,
                "step": step,
                "epoch": step // 100,
                **named,
            },
        )

    def log(
        self,
        event: str | None,
        step: int | None,
        second: float,
        message: str = "",
        level: str = "info",
        rank: int = 0,
        **fields: Any,
    ) -> None:
        self.write(
            f"log-{rank}.jsonl" if rank else "log.jsonl",
            {
                "time": instant(second),
                "run": self.folder.name,
                "rank": rank,
                "step": step,
                "level": level,
                "message": message,
                "fields": {**({"event": event} if event else {}), **fields},
            },
        )

    def example(self, step: int, answer: str, right: bool | None, picture: bytes | None = PIXEL) -> None:
        folder = self.folder / "examples"
        folder.mkdir(exist_ok=True)
        shown = {
            "name": "user 7",
            "question": "last items: 1, 2, 3",
            "expected": "4",
            "answer": answer,
            "right": right,
            "picture": picture and base64.b64encode(picture).decode(),
            "blind": None,
        }
        (folder / f"val-{step}.json").write_text(json.dumps({"stage": "val", "step": step, "examples": [shown]}))

    def write(self, name: str, line: dict[str, Any]) -> None:
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(line) + "\n")


def killed_and_resumed(folder: Path, seed: int = 1, dropout: float = 0.1) -> Recorded:
    """400 steps; killed at 170, resumed from 150; a straggler, a step without finite gradients, three evaluations."""
    run = Recorded(folder, seed, dropout)
    run.log("run_started", 0, 0, "training begins")
    for step in range(10, 171, 10):
        run.log(None, step, step, f"step {step}", **{"train/loss": 1.0})
        if step % 50 == 0:
            run.log("checkpoint_saved", step, step + 0.5, "saved", seconds=0.1, bytes=1000)
    run.log("run_resumed", 150, 300, "resuming after step 150")
    run.log("gradients_not_finite", 200, 350, "step 200: skipped", "warning")
    run.log("straggler", 230, 380, "rank 1 is slow", "warning", rank=1, ratio=2.5)
    run.log(None, 250, 400, "the disk is slow", "warning")
    for step in range(10, 401, 10):
        second = step if step <= 150 else step + 150
        loss = 3 * math.exp(-step / 120) + 0.4 + 0.02 * seed
        run.metrics(
            step,
            second,
            train__loss=loss,
            train__learning_rate=1e-3,
            train__gradient_norm=0.5,
            train__samples_per_second=1000.0 + step,
            train__data_wait=0.02,
            train__memory_gib=0.5,
        )
        if step in (100, 200, 400):
            ndcg = {100: 0.2, 200: 0.6, 400: 0.5}[step] + 0.01 * seed
            run.metrics(step, second + 0.2, val__loss=loss + 0.1, **{"val__ndcg_at_10": ndcg, "val__hr_at_10": 0.9})
            run.log("evaluated", step, second + 0.2, "evaluated", stage="val")
            run.example(step, "4" if step > 100 else "9", step > 100)
    run.metrics(400, 551, **{"val__baseline__popularity__ndcg_at_10": 0.1})
    run.log("run_ended", 400, 551, "training has ended")
    run.metrics(200, 600, test__ndcg_at_10=0.61)
    return run
