"""An error of loading names the batch that failed, and no batch that was delivered."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from engine.data.dataloader import BadBatchError, LoadingError, PendingSampler, TimedDataLoader
from engine.data.errors import BadSampleError
from engine.data.samplers import EvaluationSampler, TrainSampler
from engine.distributed.errors import is_user_error


class Fragile:
    """Returns the samples of a request, except one that it cannot read."""

    def __init__(self, broken, error=OSError):
        self.broken, self.error = broken, error

    def __getitem__(self, request):
        if self.broken in request.indices:
            raise self.error(f"cannot read file {self.broken}")
        return request.indices

    def __len__(self):
        return 100


def loader(sampler, broken=-5, workers=0, kind="global batch", error=OSError):
    data = Fragile(broken, error)
    data_loader = TimedDataLoader(data, sampler=PendingSampler(sampler), batch_size=None, num_workers=workers)
    data_loader.kind = kind
    return data_loader


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("resume", [(0, 0), (3, 2)])
def test_the_failed_batch_is_named(workers, resume):
    sampler = TrainSampler(100, 8, seed=1, accumulation=2, resume=resume)
    wanted = [draw for draw in TrainSampler(100, 8, seed=1, accumulation=2, resume=resume)][9]
    batches = iter(loader(sampler, broken=wanted.indices[2], workers=workers))
    for _ in range(9):
        next(batches)
    with pytest.raises(LoadingError) as error:
        next(batches)
    names = ", ".join(map(str, wanted.indices))
    assert str(error.value) == (
        f"loading global batch {resume[1] + 4} of epoch {resume[0]} (samples {names}) failed: "
        f"OSError: cannot read file {wanted.indices[2]}"
    )
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_is_an_error_of_the_input(workers):
    """Before training it is a user error: one message, exit code 2."""
    batches = iter(loader(EvaluationSampler(4, 2), broken=1, workers=workers, kind="batch", error=BadSampleError))
    with pytest.raises(BadBatchError, match=r"batch 0 of epoch 0 \(samples 0, 1\) failed: .*file 1") as error:
        next(batches)
    assert is_user_error(error.value)
    assert str(error.value).count("\n") == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_those_of_torchs_loader(workers):
    """Without workers it does not use the iterator of torch."""
    sampler, reference = TrainSampler(50, 8, seed=1), DataLoader(Fragile(-5), None, sampler=TrainSampler(50, 8, seed=1))
    for _ in range(2):
        ours, expected = list(loader(sampler, workers=workers)), list(reference)
        assert len(ours) == 7
        assert all(map(torch.equal, ours, expected))


def test_a_large_batch_is_named_by_its_first_samples():
    batches = iter(loader(EvaluationSampler(100, 100), broken=0, kind="evaluation batch"))
    with pytest.raises(LoadingError, match=r"evaluation batch 0 of epoch 0 \(samples 0, 1, .* 31 and 68 more\)"):
        next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_follow_each_other_after_one_that_was_cut_short(workers):
    sampler = TrainSampler(100, 8, seed=1)
    data_loader = loader(sampler, workers=workers)
    first = [batch for batch, _ in zip(data_loader, range(3), strict=False)]
    second = list(data_loader)
    reference = TrainSampler(100, 8, seed=1)
    epochs = [[draw.indices for draw in reference] for _ in range(2)]
    assert all(np.array_equal(batch, indices) for batch, indices in zip(first, epochs[0][:3], strict=True))
    assert all(np.array_equal(batch, indices) for batch, indices in zip(second, epochs[1], strict=True))
    assert data_loader.waited > 0
    assert len(data_loader) == 13
