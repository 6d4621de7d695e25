"""Tests groups of ranks that divide layers: their numbers, and what is refused before any process starts."""

from types import SimpleNamespace

import pytest

from engine.datamodule import LockstepDataModule
from engine.distributed.data_parallel_rank import DataParallelRank, data_parallel_rank
from engine.family_hooks import FamilyHooks
from engine.optim.optimizer_checks import check_strategy
from engine.strategies.fsdp import has_sharded_weights
from engine.strategies.tensor_parallel import TensorParallelStrategy


def trainer(rank: int, world_size: int, **strategy: int) -> SimpleNamespace:
    return SimpleNamespace(global_rank=rank, world_size=world_size, strategy=SimpleNamespace(**strategy))


def test_neighbours_read_the_same_samples_and_one_of_them_counts():
    groups = [data_parallel_rank(trainer(rank, 4, tensor_parallel=2)) for rank in range(4)]
    assert groups == [(0, 2, True), (0, 2, False), (1, 2, True), (1, 2, False)]
    assert [data_parallel_rank(trainer(rank, 2)) for rank in range(2)] == [(0, 2, True), (1, 2, True)]
    assert data_parallel_rank(None) == DataParallelRank(0, 1, True)


@pytest.mark.parametrize("sharding", ["FULL_SHARD", "HYBRID_SHARD"])
def test_ranks_that_do_not_form_groups_are_refused(monkeypatch, sharding):
    strategy = TensorParallelStrategy(3, sharding_strategy=sharding)
    monkeypatch.setattr(TensorParallelStrategy, "world_size", 4)
    monkeypatch.setattr(TensorParallelStrategy, "num_processes", 4)
    with pytest.raises(ValueError, match=r"init_args.tensor_parallel is 3, which does not divide the 4 ranks of"):
        strategy.setup_environment()


def test_state_in_blocks_is_refused():
    with pytest.raises(ValueError, match="optimizer adamw_8bit with trainer.strategy.init_args.tensor_parallel 2"):
        check_strategy("adamw_8bit", TensorParallelStrategy())
    check_strategy("adamw_8bit", TensorParallelStrategy(1))


def test_tensor_parallel_0_is_refused():
    with pytest.raises(ValueError, match=r"trainer.strategy.init_args.tensor_parallel"):
        TensorParallelStrategy(0)


def test_a_family_without_a_language_model_is_refused():
    class Recommender(FamilyHooks):
        pass

    with pytest.raises(ValueError, match="tensor_parallel is 2, but Recommender has no language model"):
        Recommender().tensor_parallel_layers(2)
    assert has_sharded_weights(TensorParallelStrategy())


def test_skipped_samples_are_refused():
    data = LockstepDataModule(batch_size=4, on_bad_sample="skip")
    assert data.skips_bad_samples
    data.trainer = trainer(0, 2, tensor_parallel=2)
    with pytest.raises(ValueError, match="on_bad_sample skip with trainer.strategy.init_args.tensor_parallel 2"):
        _ = data.skips_bad_samples
    data.trainer = trainer(0, 2)
    assert data.skips_bad_samples
    data = LockstepDataModule(batch_size=4)
    data.trainer = trainer(0, 2, tensor_parallel=2)
    assert not data.skips_bad_samples
