"""Options of trainings that update single item rows, and what they have saved."""

import torch

from tests.conftest import TINY

SAMPLED = [
    *TINY,
    "--trainer.max_epochs=-1",
    "--model.init_args.loss=sampled_softmax",
    "--data.init_args.num_negatives=7",
    "--data.init_args.shared_negatives=true",
    "--replica_consistency.every_n_steps=1",
]
ADAGRAD = [
    *SAMPLED,
    "--model.init_args.item_optimizer",
    "rowwise_adagrad",
    "--model.init_args.item_learning_rate",
    "0.05",
]
LAZY = [*SAMPLED, "--model.init_args.item_optimizer", "lazy_adamw", "--model.init_args.weight_decay", "0.1"]
EXACT = ["--model.init_args.dropout", "0"]


def steps(number):
    return ["--trainer.max_steps", str(number)]


def saved(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)
