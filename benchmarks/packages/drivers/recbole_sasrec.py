"""Runs SASRec of RecBole, trained and evaluated by its own Trainer.

RecBole trains on every prefix of a history as a separate row, whose last item is the only target.
"""

import logging
import sys
import warnings
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

from turns import Turns

warnings.simplefilter("ignore")  # deprecations of its dependencies
logging.disable(logging.WARNING)


def main() -> None:
    """Run in an empty folder, which gets a copy of the interactions."""
    turns = Turns()
    settings = turns.settings
    from recbole.config import Config
    from recbole.data import create_dataset, data_preparation
    from recbole.model.sequential_recommender import SASRec
    from recbole.trainer import Trainer
    from recbole.utils import init_seed

    _columns_with_types(Path(settings["interactions"]), Path("data/these/these.inter"))
    sys.argv = sys.argv[:1]  # Config reads the command line
    config = Config(model="SASRec", dataset="these", config_dict=_options(settings))
    init_seed(config["seed"], config["reproducibility"])
    train_rows, _, test_rows = data_preparation(config, create_dataset(config))
    model = SASRec(config, train_rows.dataset)
    trainer = Trainer(config, model)
    versions = {"package": version("recbole"), "torch": version("torch")}

    if settings["work"] == "train":
        rows: list[int] = []
        loss = model.calculate_loss

        def counted_loss(batch: Any) -> Any:
            rows.append(len(batch))
            return loss(batch)

        # RecBole has no callbacks: the loss sees the size of a batch, and a hook of the optimizer the end of a step.
        model.calculate_loss = counted_loss
        trainer.optimizer.register_step_post_hook(lambda *_: turns.done(rows=rows[-1], targets=rows[-1]))
        turns.begin(**versions)
        trainer.fit(train_rows, saved=False)
    elif settings["work"] == "evaluate":
        turns.begin(**versions)
        while True:
            trainer.evaluate(test_rows, load_best_model=False)
            turns.done(users=len(test_rows.dataset))
    else:
        turns.begin(**versions)
        # RecBole counts epochs, and the compared variants count steps.
        trainer.epochs = ceil(settings["steps"] / len(train_rows))
        trainer.fit(train_rows, saved=False)
        turns.done(ndcg=float(trainer.evaluate(test_rows, load_best_model=False)["ndcg@10"]))


def _columns_with_types(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    rows = source.read_text().split("\n", 1)[1]
    target.write_text(f"user_id:token,item_id:token,timestamp:float\n{rows}")


def _options(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "data_path": "data",
        "checkpoint_dir": "saved",
        "field_separator": ",",
        "use_gpu": False,
        "epochs": 10**6,
        "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
        "MAX_ITEM_LIST_LENGTH": settings["length"],
        "loss_type": "CE",
        "train_neg_sample_args": None,
        "learning_rate": settings["learning_rate"],
        "hidden_size": settings["hidden_size"],
        "inner_size": settings["hidden_size"],
        "hidden_act": "relu",
        "n_layers": settings["blocks"],
        "n_heads": settings["heads"],
        "hidden_dropout_prob": settings["dropout"],
        "attn_dropout_prob": settings["dropout"],
        "train_batch_size": settings["batch_size"],
        "eval_batch_size": settings["evaluation_batch_size"],
        "eval_args": {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"},
        "metrics": ["NDCG"],
        "topk": [10],
        "valid_metric": "NDCG@10",
        "show_progress": False,
    }


if __name__ == "__main__":
    main()
