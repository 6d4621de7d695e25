"""Image classifier with all randomness on: the same on 1 and 2 ranks, and bit-identical after a kill."""

import signal

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.support.data_files.image_files import write_colors
from tests.support.outputs.jsonl import read_jsonl
from tests.support.outputs.metric_series import assert_same_series
from tests.tiers import slow

OPTIONS = [
    "--config",
    str(REPOSITORY / "configs/image_classifier/digits.yaml"),
    "--model.init_args.width=8",
    "--model.init_args.ema_decay=0.8",
    "--model.init_args.warmup_steps=3",
    "--data.init_args.batch_size=50",
    "--data.init_args.flip=true",
    "--data.init_args.mixup=0.4",
    "--trainer.limit_train_batches=6",
    "--trainer.max_epochs=2",
    "--trainer.check_val_every_n_epoch=1",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
    "--last_checkpoint.every_n_steps=4",
]


# 1,293 images to train: the last step of an epoch has 3 of them, which two processes share as 2 and 1.
ODD = ["--data.init_args.batch_size", "430", "--data.init_args.validation_share", "0.1005"]


@pytest.mark.parametrize(("norm", "accumulated"), [("group", False), slow("group", True), slow("sync_batch", False)])
def test_one_and_two_processes_train_the_same(lockstep, team, norm, accumulated):
    options = [*OPTIONS, *ODD, "--model.init_args.norm", norm]
    alone = lockstep("fit", *options, name="alone")
    others = [team("fit", *options, name="pair", processes=2).succeeded(300)]
    if accumulated:
        others.append(lockstep("fit", *options, "--data.init_args.micro_batch_size", "86", name="accumulated"))
    # Statistics over the three images of a last step amplify rounding: to 5e-4 on some machines.
    of_loss = 2e-3 if norm == "sync_batch" else 2e-4
    for other in others:
        for metric, tolerance in {"train/loss": of_loss, "val/loss": 2e-4, "val/accuracy": 1 / 145 + 1e-6}.items():
            assert_same_series(alone, other, [metric], tolerance)
    assert len(alone.series("train/loss")) == 8


@pytest.mark.slow
def test_ranks_with_own_batch_norms_evaluate_those_of_the_checkpoint(lockstep, team):
    """`batch`: killed and gone on with, the run ends with the same weights and averages, to the bit."""
    options = [*OPTIONS, "--model.init_args.norm", "batch"]
    through = team("fit", *options, name="through", processes=2)
    assert through.end(300) == [0, 0], through.output
    killed = team("fit", *options, name="killed", processes=2)
    killed.wait_for("checkpoints/last.ckpt", 200)
    for process in (0, 1):
        killed.signal(process, signal.SIGKILL)
    assert killed.end(60) == [-signal.SIGKILL] * 2
    again = team("fit", *options, "--ckpt_path", "last", name="killed", processes=2).succeeded(300)
    ours, theirs = (weights(run) for run in (through, again))
    assert sum(name.startswith("average.") for name in ours) > 50
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    lockstep("validate", *options, "--ckpt_path", "last", name="through")
    losses = [run.series("val/loss")[12] for run in (through, again)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def weights(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.slow
def test_only_corrupt_files_are_skipped(team, tmp_path):
    """The first file of each set is corrupt, is mixed into others, and is what a filler would stand for."""
    counts = {"train": 3, "val": 1, "test": 1}
    for part, number in counts.items():
        write_colors(tmp_path / "data/images" / part, number)
        (tmp_path / f"data/images/{part}/blue/0.png").write_bytes(b"no image")
    run = team(
        "fit",
        "--config",
        str(REPOSITORY / "configs/image_classifier/image_folder.yaml"),
        *OPTIONS[-5:],
        "--model.init_args.width=8",
        "--model.init_args.depth=1",
        "--model.init_args.heads=1",
        "--data.init_args.image_size=16",
        "--data.init_args.batch_size=4",
        "--data.init_args.num_workers=0",
        "--data.init_args.max_bad_samples=6",
        "--trainer.max_epochs=6",
        name="a",
        processes=2,
    )
    run.succeeded(200)
    lines = read_jsonl(run.folder / "bad_samples.jsonl")
    assert sorted((line["stage"], line["sample"]) for line in lines) == [("train", 0), ("val", 0)]
    assert sorted(run.series("train/loss")) == list(range(1, 13))
