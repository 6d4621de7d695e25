"""Contrastive page retriever with negatives of all ranks: the same training and rankings on any world size."""

import json

import pytest
import torch
import yaml

from tests.support.families.tiny_retriever import write_config
from tests.support.outputs.metric_series import assert_same_series
from tests.tiers import slow

# A fourth of the questions has no evidence and is in no batch. Of the last 2 of 26 samples, the third process has none.
SIZES = {"size": 26, "batch_size": 6, "evaluation_batch_size": 7, "hard_negatives": 2}
LOSSES = ("train/loss", "train/temperature", "train/gradient_norm", "val/mrr", "val/figure/page_recall@1")


@pytest.fixture
def options(tmp_path):
    """Two epochs of 5 steps; replicas are compared to the bit after each."""
    config = write_config(tmp_path, SIZES, symmetric=True)
    more = {"trainer": {"max_steps": 10}, "replica_consistency": {"every_n_steps": 1}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    return [*config, "--config", str(tmp_path / "more.yaml")]


def difference(first, second):
    """The largest of any weight.

    But of the tower's biases of keys: they change no attention, so their gradient is rounding, of which Adam makes
    whole steps.
    """
    ours, theirs = (
        torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"] for run in (first, second)
    )
    assert ours.keys() == theirs.keys()
    return max(
        float((weight - theirs[name]).abs().max())
        for name, weight in ours.items()
        if not (name.startswith("encoder.") and name.endswith("k_proj.bias"))
    )


@pytest.mark.parametrize("processes", [2, slow(3)])
def test_trains_as_one_process_does(lockstep, team, options, processes):
    alone = lockstep("fit", *options, name="alone")
    assert sorted(alone.series("train/loss")) == list(range(1, 11))
    run = team("fit", *options, name="team", processes=processes).succeeded(150)
    assert_same_series(alone, run, LOSSES, 1e-4)
    assert difference(alone, run) < 1e-5


@pytest.mark.slow
def test_two_processes_rank_as_one_does(lockstep, team, options):
    lockstep("fit", *options, "--trainer.max_steps", "1", name="model")
    options = [*options, "--data.init_args.rank", "[validation, test]", "--ckpt_path", "last"]
    alone = lockstep("predict", *options, name="model")
    content = (alone.folder / "rankings.jsonl").read_text()
    assert len(list(map(json.loads, content.splitlines()))) == 52
    pair = team("predict", *options, name="model", processes=2).succeeded(120)
    assert (pair.folder / "rankings.jsonl").read_text() == content


@pytest.fixture
def sharded(options, tmp_path):
    """The same by FSDP."""
    fsdp = "tests.support.ranks.sharded_on_cpu.ShardedOnCPU"
    strategy = {"class_path": fsdp, "init_args": {"state_dict_type": "full"}}
    more = {
        "trainer": {"strategy": strategy},
        "checkpoints": {"trainable_only": False},
        "best_checkpoint": {"keep": 2},
        "last_checkpoint": {"keep": 2},
    }
    (tmp_path / "sharded.yaml").write_text(yaml.safe_dump(more))
    return [*options, "--config", str(tmp_path / "sharded.yaml"), "--replica_consistency.every_n_steps", "0"]


@pytest.mark.slow
def test_shards_train_as_one_process_does(lockstep, team, options, sharded):
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *sharded, name="pair", processes=2).succeeded(150)
    assert_same_series(alone, pair, LOSSES, 1e-4)


@pytest.mark.slow
def test_encode_at_once_is_refused_with_shards(team, sharded):
    refused = team("fit", *sharded, "--model.init_args.encode_at_once", "2", name="refused", processes=2)
    assert all(refused.end(120))
    assert "with sharded weights (FSDP)" in refused.output
