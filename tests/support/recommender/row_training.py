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


def assert_equal_states(first, second):
    """Assert that the weights and the optimizer states of two checkpoints are equal to the bit."""
    assert first["state_dict"].keys() == second["state_dict"].keys()
    for name, weight in first["state_dict"].items():
        assert torch.equal(weight, second["state_dict"][name]), name
    states = [each["optimizer_states"][0]["state"] for each in (first, second)]
    assert states[0].keys() == states[1].keys()
    for number, state in states[0].items():
        assert all(torch.equal(value, states[1][number][key]) for key, value in state.items()), number
