"""Tests training with item features: equal on two ranks and on one, and bit-identical after a stop."""

import pytest
import torch

from tests.conftest import TINY
from tests.support.outputs.metric_series import assert_same_series

pytestmark = pytest.mark.slow

FEATURES = [
    *TINY,
    "--model.init_args.dropout=0",
    "--model.init_args.item_dropout=0.3",
    "--trainer.max_epochs=-1",
    "--replica_consistency.every_n_steps=1",
    "--data.init_args.item_features.categories=[aisle, errand]",
    "--data.init_args.item_features.numbers=[shelf, step]",
]
BY_ROWS = [
    "--model.init_args.loss=sampled_softmax",
    "--data.init_args.num_negatives=7",
    "--data.init_args.shared_negatives=true",
    "--model.init_args.item_optimizer=lazy_adamw",
]


def steps(number):
    return ["--trainer.max_steps", str(number)]


@pytest.mark.parametrize("options", [[], BY_ROWS], ids=["cross_entropy", "rows"])
def test_two_processes_and_a_stop_change_nothing(lockstep, team, options):
    alone = lockstep("fit", *FEATURES, *options, *steps(10), name="alone")
    assert sorted(alone.series("train/loss")) == list(range(1, 11))
    pair = team("fit", *FEATURES, *options, *steps(10), name="pair", processes=2)
    assert pair.end() == [0, 0], pair.output
    assert_same_series(pair, alone)
    if options:
        return
    lockstep("fit", *FEATURES, *steps(6), name="stopped")
    stopped = lockstep("fit", *FEATURES, *steps(10), "--ckpt_path", "last", name="stopped")
    ours, theirs = (torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (stopped, alone))
    assert ours["item_features"] == theirs["item_features"]
    assert "number shelf" in ours["item_features"]["columns"]
    assert any(name.startswith("item_features.") for name in ours["state_dict"])
    for name, weight in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weight), name
    others = ["--data.init_args.item_features.categories", "[aisle]", "--ckpt_path", "last"]
    with pytest.raises(ValueError, match="number step, the config has categories aisle. Give data.init_args.item_feat"):
        lockstep("fit", *TINY, *others, name="stopped")
