"""Any number of ranks loads the state of a sharded checkpoint to the bit; each way to shard trains as one process."""

import pytest
import torch
import yaml

from tests.conftest import TINY
from tests.support.ranks.whole_state import whole_state

pytestmark = pytest.mark.slow
METRICS = ("train/loss", "train/gradient_norm", "val/ndcg@10")


@pytest.fixture
def sharded(tmp_path):
    """Return the options of FSDP with one of its ways to shard."""

    def write(sharding_strategy="FULL_SHARD"):
        strategy = {"class_path": "engine.strategies.fsdp.VerifiedFSDPStrategy"}
        strategy["init_args"] = {"sharding_strategy": sharding_strategy}
        keep = {"best_checkpoint": {"keep": 2}, "last_checkpoint": {"keep": 2}}
        path = tmp_path / "shards.yaml"
        path.write_text(yaml.safe_dump({"trainer": {"strategy": strategy}, **keep}))
        return ["--config", str(path)]

    return write


def state(run, name):
    return torch.load(run.folder / name, weights_only=True)


def differing(ours, theirs):
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.parametrize("optimizer", ["muon", "adamw_8bit"])
def test_any_number_of_ranks_loads_the_same_weights_and_moments(lockstep, team, sharded, optimizer):
    """Before their first step: that of 2 ranks at its end is that of 3, of 1 and of a process without shards."""
    common = [*TINY, *whole_state(), "--data.init_args.batch_size", "12", "--model.init_args.optimizer", optimizer]
    common += ["--trainer.limit_val_batches", "0"]
    saved = team("fit", *common, *sharded(), "--trainer.max_steps", "3", name="saved", processes=2).succeeded()
    expected, before = state(saved, "end.pt"), state(saved, "start.pt")
    assert expected["meshes"] == [(2,)]
    assert expected["tensors"].keys() > before["tensors"].keys(), "weights, and moments after the first step"
    weights = {name: expected["tensors"][name] for name in before["tensors"]}
    assert differing(before["tensors"], weights), "it has trained"

    further = ["--trainer.max_steps", "4", "--ckpt_path", str(saved.folder / "checkpoints/last.ckpt")]
    for processes in (1, 3):
        options = [*common, *sharded(), *further]
        run = team("fit", *options, name=f"of{processes}", processes=processes).succeeded()
        found = state(run, "start.pt")
        assert found["meshes"] == [(processes,)]
        assert differing(found["tensors"], expected["tensors"]) == []
    plain = lockstep("fit", *common, *further, name="plain")
    found = state(plain, "start.pt")
    assert found["meshes"] == []
    assert differing(found["tensors"], expected["tensors"]) == []


@pytest.mark.parametrize(
    ("sharding_strategy", "node_size", "mesh", "whole_layers"),
    [("HYBRID_SHARD", 2, (2, 2), 0), ("SHARD_GRAD_OP", 4, (4,), 2)],
)
def test_each_way_to_shard_trains_as_one_process(
    lockstep, team, sharded, sharding_strategy, node_size, mesh, whole_layers
):
    """HYBRID_SHARD shards within a node; SHARD_GRAD_OP keeps the weights of layers until the backward pass."""
    common = [*TINY, *whole_state(), "--model.init_args.num_blocks", "2", "--trainer.gradient_clip_val", "0.1"]
    common += ["--trainer.max_steps", "5", "--trainer.limit_val_batches", "2"]
    alone = lockstep("fit", *common, name="alone")
    options = [*common, *sharded(sharding_strategy)]
    four = team("fit", *options, name="four", processes=4, node_size=node_size).succeeded()
    end = state(four, "end.pt")
    assert (end["meshes"], end["whole_layers"]) == ([mesh], whole_layers)
    for metric in METRICS:
        expected = alone.series(metric)
        assert expected
        assert four.series(metric) == pytest.approx(expected, abs=1e-5)
