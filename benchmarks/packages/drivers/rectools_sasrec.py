"""Runs SASRec of RecTools, trained by Lightning's Trainer, evaluated by `recommend` and its metrics.

A row has a user's last events, padded to the full length; every item after the first is a target.
"""

import logging
import warnings
from importlib.metadata import version
from typing import Any

from turns import Turns

warnings.simplefilter("ignore")  # deprecations of its dependencies


def main() -> None:
    """Run in an empty folder."""
    turns = Turns()
    settings = turns.settings
    import pandas as pd
    from pytorch_lightning import Callback, Trainer, seed_everything
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.metrics import NDCG
    from rectools.models import SASRecModel

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    seed_everything(1)
    versions = {"package": version("rectools"), "torch": version("torch")}
    events = pd.read_csv(settings["interactions"]).rename(columns={"timestamp": Columns.Datetime})
    events[Columns.Datetime] = pd.to_datetime(events[Columns.Datetime], unit="s")
    events[Columns.Weight] = 1.0
    # Number of later events of the user: 0 is the test event, 1 the validation event.
    after = events.groupby(Columns.User).cumcount(ascending=False)
    train, known, held_out = Dataset.construct(events[after > 1]), Dataset.construct(events[after > 0]), after == 0
    test = events[held_out]

    class Gate(Callback):
        def on_train_start(self, *_: Any) -> None:
            turns.begin(**versions)

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            turns.done(rows=len(batch["y"]), targets=int(batch["y"].ne(0).sum()))

    def trainer() -> Trainer:
        steps = {"train": 10**8, "evaluate": 1, "learn": settings["steps"]}[settings["work"]]
        return Trainer(
            accelerator="cpu",
            max_steps=steps,
            max_epochs=-1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Gate()] if settings["work"] == "train" else [],
        )

    model = SASRecModel(
        n_blocks=settings["blocks"],
        n_heads=settings["heads"],
        n_factors=settings["hidden_size"],
        dropout_rate=settings["dropout"],
        session_max_len=settings["length"],
        loss="softmax",
        lr=settings["learning_rate"],
        batch_size=settings["batch_size"],
        recommend_batch_size=settings["evaluation_batch_size"],
        get_trainer_func=trainer,
    )

    def evaluate() -> float:
        ranked = model.recommend(users=test[Columns.User].unique(), dataset=known, k=10, filter_viewed=True)
        return NDCG(10, divide_by_achievable=True).calc(ranked, test)

    if settings["work"] == "train":
        model.fit(train)
    elif settings["work"] == "evaluate":
        model.fit(train)
        turns.begin(**versions)
        while True:
            evaluate()
            turns.done(users=len(test))
    else:
        turns.begin(**versions)
        model.fit(train)
        turns.done(ndcg=evaluate())


if __name__ == "__main__":
    main()
