"""A run with dropout in 16-mixed, stopped or killed in the middle of an epoch, resumes to the bit."""

import pytest
import torch

from engine.checkpointing.cpu_snapshot import Snapshot
from tests.conftest import TINY, Run
from tests.support.device.options import DETERMINISTIC, on, quiet
from tests.support.faults.step_faults import fault

# Epochs of 13 steps. Sums by atomics and cuBLAS are deterministic, so that equal means equal to the bit.
DROPPING = [*TINY, "--model.init_args.attention", "time_interval", "--model.init_args.dropout", "0.2"]
OPTIONS = [*DROPPING, "--trainer.limit_val_batches", "0", "--last_checkpoint.every_n_steps", "3", *DETERMINISTIC]
STEPS = 17
ASYNCHRONOUS = ["--checkpoints.asynchronous", "true"]


def options(device, steps=STEPS):
    return [*OPTIONS, *on(device, "16-mixed"), *quiet(steps)]


@pytest.fixture(scope="module")
def through(shared_workplace, device):
    """A run that nothing disturbs."""
    return shared_workplace.run("fit", *options(device), name="through")


def state(run: Run):
    """Return weights, optimizer state and loss scale of the last checkpoint."""
    saved = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True, map_location="cpu")
    moments = {
        f"{parameter}.{name}": value
        for parameter, of_one in saved["optimizer_states"][0]["state"].items()
        for name, value in of_one.items()
    }
    scaler = saved.get("MixedPrecision") or saved["HalfOnCPU"]
    return {**saved["state_dict"], **moments, "scale": torch.tensor(scaler["scale"])}


def same_to_the_bit(run: Run, through: Run) -> None:
    assert run.series("train/loss") == through.series("train/loss")
    ours, theirs = state(run), state(through)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_stopped_in_the_middle_of_an_epoch(device, workplace, through):
    workplace.run("fit", *options(device, 8), name="stopped")
    resumed = workplace.run("fit", *options(device), "--ckpt_path", "last", name="stopped")
    assert resumed.starts == [0, 8], resumed.output
    same_to_the_bit(resumed, through)
    assert len(set(through.series("train/loss").values())) == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("saving", [[], ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
def test_a_run_killed_in_the_middle_of_an_epoch_resumes_to_the_bit(device, workplace, through, saving):
    """It resumes from the last checkpoint before, and trains the steps after that again."""
    kill = fault("SignalAt", name="SIGKILL", step=8)
    killed = workplace.run("fit", *options(device), *saving, *kill, name="killed", codes=[-9])
    assert max(killed.series("train/loss")) == 8
    resumed = workplace.run("fit", *options(device), *saving, "--ckpt_path", "last", name="killed")
    assert resumed.starts[-1] in (3, 6), "the write of the checkpoint after step 6 may have been cut"
    same_to_the_bit(resumed, through)


def test_a_snapshot_is_of_its_moment(device, workplace):
    assert workplace.call(snapshot_while_training_goes_on, device) == [device == "cuda", True, True]


def snapshot_while_training_goes_on(device: str) -> list[bool]:
    """Return whether the copy is in pinned memory, is that of its moment, and reuses its memory for the next."""
    snapshot, weights = Snapshot(), torch.zeros(1 << 22, device=device)
    strided = torch.arange(6.0, device=device).view(2, 3).T
    for _ in range(50):  # so that the copy is queued behind kernels that are not done
        weights += 1
    content = {"weights": weights, "tied": weights, "strided": strided, "step": 3}
    copied = snapshot.copy_to_cpu(content)
    weights += 1
    kept = bool((copied["weights"] == 50).all()) and copied["tied"] is copied["weights"]
    kept = kept and torch.equal(copied["strided"], torch.arange(6.0).view(2, 3).T) and copied["step"] == 3
    pinned, address = copied["weights"].is_pinned() if device == "cuda" else False, copied["weights"].data_ptr()
    again = snapshot.copy_to_cpu(content)
    return [pinned, kept, again["weights"].data_ptr() == address and bool((again["weights"] == 51).all())]
