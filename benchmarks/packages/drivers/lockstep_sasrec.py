"""Runs SASRec of this project as `train.py fit` and `train.py test` run it, with all guards.

A row has a user's last events. Rows are computed in groups of similar length; every item after the first is a target.
"""

import logging
from importlib.metadata import version
from typing import Any

from turns import Turns


def main() -> None:
    """Run in an empty folder, which gets the run's folder."""
    turns = Turns()
    settings = turns.settings
    # Imported after the settings have arrived, so that imports are not part of a turn.
    from lightning.pytorch import Callback, LightningModule, Trainer

    from commands.cli.console_logging import filter_lightning_noise
    from commands.cli.main import LockstepCLI

    filter_lightning_noise()
    logging.getLogger("lockstep").setLevel(logging.ERROR)
    versions = {"package": "", "torch": version("torch")}

    class Gate(Callback):
        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            turns.begin(**versions)

        def on_train_batch_end(
            self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            rows = sum(len(part.history.lengths) for part in batch)
            turns.done(rows=rows, targets=sum(int(part.targets.ne(0).sum()) for part in batch))

    class Measured(LockstepCLI):
        def before_fit(self) -> None:
            if settings["work"] == "train":
                # Last, so that a turn ends after the work of all guards.
                self.trainer.callbacks.append(Gate())
            else:  # a log belongs to a single command, and here a test follows in the same process
                self.trainer.callbacks = [c for c in self.trainer.callbacks if type(c).__name__ != "RunLog"]

    if settings["work"] == "learn":
        turns.begin(**versions)
    fitted = Measured(_options(settings))

    def test() -> float:
        return fitted.trainer.test(fitted.model, datamodule=fitted.datamodule, verbose=False)[0]["test/ndcg@10"]

    if settings["work"] == "evaluate":
        turns.begin(**versions)
        # `done` ends the process after the last turn.
        while True:
            test()
            turns.done(users=settings["users"])
    turns.done(ndcg=test())


def _options(settings: dict[str, Any]) -> list[str]:
    steps = {"train": 10**8, "evaluate": 1, "learn": settings["steps"]}[settings["work"]]
    model = {
        "num_heads": settings["heads"],
        "hidden_size": settings["hidden_size"],
        "num_blocks": settings["blocks"],
        "feed_forward_size": settings["hidden_size"],
        "dropout": settings["dropout"],
        "baselines": "false",
        "learning_rate": settings["learning_rate"],
        "base_batch_size": settings["batch_size"],
        "warmup_steps": 0,
        "schedule": "constant",
    }
    data = {
        "dataset": "files",
        "root": settings["interactions"],
        "max_length": settings["length"],
        "batch_size": settings["batch_size"],
        "evaluation_batch_size": settings["evaluation_batch_size"],
    }
    trainer = {
        "accelerator": "cpu",
        "max_steps": steps,
        "max_epochs": -1,
        "limit_val_batches": 0,
        "logger": "false",
        "enable_progress_bar": "false",
    }
    options = ["fit", "--config", settings["config"], "--run_name", "benchmark", "--best_checkpoint.monitor", "none"]
    options += ["--last_checkpoint.every_n_steps", str(10**8)]
    for group, values in {"model.init_args": model, "data.init_args": data, "trainer": trainer}.items():
        for name, value in values.items():
            options += [f"--{group}.{name}", str(value)]
    return options


if __name__ == "__main__":
    main()
