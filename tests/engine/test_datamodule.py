"""Tests the position in the order of the samples in a checkpoint, and the runs that can resume from it."""

from types import SimpleNamespace

import pytest

from engine.data.stream import StreamDataset
from engine.datamodule import LockstepDataModule


class Sized:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, request):
        return request.indices


class Positions(StreamDataset):
    identity = "shards a to c"

    def __init__(self, length):
        self.length = length

    def records(self, epoch):
        return iter(range(self.length))

    def batch(self, epoch, positions, records):
        return positions


class Trainer(SimpleNamespace):
    """The attributes of Lightning's Trainer that the data module reads."""

    def __init__(self):
        progress = SimpleNamespace(current=SimpleNamespace(processed=0), total=SimpleNamespace(ready=0))
        super().__init__(
            state=SimpleNamespace(fn="fit"),
            fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
            strategy=SimpleNamespace(root_device=SimpleNamespace(type="cpu")),
            global_rank=0,
            world_size=1,
            num_devices=1,
            num_training_batches=float("inf"),
            limit_train_batches=1.0,
            is_last_batch=False,
        )

    def train(self, micro_batches, last=False):
        progress = self.fit_loop.epoch_loop.batch_progress
        progress.current.processed += micro_batches
        progress.total.ready += micro_batches
        self.is_last_batch = last


def module(data, state=None, **options):
    data_module = LockstepDataModule(**{"batch_size": 4, **options})
    data_module.train_set, data_module.trainer = data, Trainer()
    if state is not None:
        data_module.load_state_dict(state)
    return data_module


@pytest.mark.parametrize("data", [Sized(10), Positions(10)], ids=["sized", "stream"])
def test_the_position_counts_trained_batches(data):
    run = module(data, micro_batch_size=2)
    batches = iter(run.train_dataloader())
    assert run.state_dict()["epoch"] == run.state_dict()["batches"] == 0
    next(batches)  # prefetched, not trained
    assert run.state_dict()["batches"] == 0
    run.trainer.train(4)
    assert (run.state_dict()["epoch"], run.state_dict()["batches"]) == (0, 2)
    run.trainer.train(2, last=True)
    state = run.state_dict()
    assert (state["epoch"], state["batches"], state["accumulation"]) == (1, 0, 2)

    resumed = module(data, state)
    resumed.trainer.is_last_batch = True  # Lightning keeps the checkpoint's counters until something is trained
    resumed.trainer.fit_loop.epoch_loop.batch_progress.current.processed = 6
    next(iter(resumed.train_dataloader()))
    assert (resumed.state_dict()["epoch"], resumed.state_dict()["batches"]) == (1, 0)


def state_of(data, **options):
    run = module(data, **options)
    next(iter(run.train_dataloader()))
    run.trainer.train(1)
    return run.state_dict()


@pytest.mark.parametrize(
    ("before", "after", "options", "message"),
    [
        (Sized(10), Sized(11), {}, "with num_samples 10, this run has num_samples 11"),
        (Sized(10), Sized(10), {"batch_size": 8}, "with batch_size 4, this run has batch_size 8"),
        (Sized(10), Positions(10), {}, "with no stream, this run has stream shards a to c"),
        (Positions(10), Sized(10), {}, "with no num_samples, this run has num_samples 10"),
    ],
)
def test_an_epoch_resumes_only_with_the_same_order(before, after, options, message):
    state = state_of(before)
    with pytest.raises(ValueError, match=f"1 batches into epoch 0 {message}"):
        module(after, state, **options).train_dataloader()
    module(after, {**state, "epoch": 1, "batches": 0}, **options).train_dataloader()


def test_an_epoch_does_not_resume_with_another_seed(monkeypatch):
    """The rest of another order would contain some samples twice, and others never."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    state = state_of(Sized(10))
    monkeypatch.setenv("PL_GLOBAL_SEED", "8")
    with pytest.raises(ValueError, match="1 batches into epoch 0 with seed 7, this run has seed 8"):
        module(Sized(10), state).train_dataloader()
    module(Sized(10), {**state, "epoch": 1, "batches": 0}).train_dataloader()


def test_a_stream_with_the_same_identity_may_have_grown():
    """Its length is not known, so it is not compared."""
    batches = iter(module(Positions(20), state_of(Positions(10))).train_dataloader())
    assert next(batches).tolist() == [4, 5, 6, 7]


def test_the_plan_counts_groups_of_ranks_that_read_the_same_samples():
    data_module = LockstepDataModule(batch_size=4)
    data_module.trainer = Trainer()
    data_module.trainer.world_size = 4
    data_module.trainer.strategy.tensor_parallel = 2
    assert str(data_module.plan) == "global batch 4 = 2 groups of 2 ranks x 2 samples x 1 accumulation step"
