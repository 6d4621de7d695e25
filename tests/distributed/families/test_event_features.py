"""Tests training with event features: equal on two ranks and on one, and bit-identical after a stop."""

import pytest
import torch

from tests.support.outputs.metric_series import assert_same_series
from tests.support.recommender.event_table import FEATURES, OPTIONS, write_table

pytestmark = pytest.mark.slow


def test_two_processes_and_a_stop_change_nothing(lockstep, team, tmp_path):
    write_table(tmp_path)
    steps = ["--trainer.max_epochs", "-1", "--trainer.max_steps"]
    alone = lockstep("fit", *OPTIONS, *FEATURES, *steps, "8", name="alone")
    pair = team("fit", *OPTIONS, *FEATURES, *steps, "8", name="pair", processes=2)
    assert pair.end() == [0, 0], pair.output
    assert_same_series(pair, alone)
    lockstep("fit", *OPTIONS, *FEATURES, *steps, "5", name="stopped")
    stopped = lockstep("fit", *OPTIONS, *FEATURES, *steps, "8", "--ckpt_path", "last", name="stopped")
    ours, theirs = (torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (stopped, alone))
    assert ours["event_features"] == theirs["event_features"]
    assert ours["event_features"]["columns"] == "categories device, number stars"
    assert ours["state_dict"].keys() == theirs["state_dict"].keys()
    for name, weight in theirs["state_dict"].items():
        assert torch.equal(ours["state_dict"][name], weight), name
    for other, message in (
        ([], "trained with event features, and the config has no data.init_args.event_features. Give it"),
        (["--data.init_args.event_features.numbers", "[stars]"], "the event features .* the config has number stars"),
    ):
        with pytest.raises(ValueError, match=message):
            lockstep("fit", *OPTIONS, *other, *steps, "9", "--ckpt_path", "last", name="stopped")
