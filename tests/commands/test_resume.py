"""A stopped and resumed run is bit-identical to an uninterrupted run: bitwise equal losses and metrics."""

import json

import pytest

from tests.conftest import TINY
from tests.support.families.tiny_linear import TINY_FAMILY

# 200 sequences in batches of 16: 13 steps an epoch, the last with 8 sequences. Dropout is on.
OPTIONS = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_epochs", "-1"]


def steps(number):
    return ["--trainer.max_steps", str(number)]


def test_stopped_in_the_middle_of_an_epoch(lockstep):
    through = lockstep("fit", *OPTIONS, *steps(45), name="through")
    stopped = lockstep("fit", *OPTIONS, *steps(18), name="stopped")
    assert sorted(stopped.series("train/loss")) == list(range(1, 19))
    resumed = lockstep("fit", *OPTIONS, *steps(45), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    validated = resumed.series("val/ndcg@10")
    del validated[18]  # the end of the first start
    assert validated == through.series("val/ndcg@10")


@pytest.mark.slow
def test_random_windows_resume_bit_identically(lockstep):
    short = [*OPTIONS, "--data.init_args.max_length", "8"]
    windows = [*short, "--data.init_args.windows", "random"]
    through = lockstep("fit", *windows, *steps(32), name="through")
    lockstep("fit", *windows, *steps(18), name="stopped")
    resumed = lockstep("fit", *windows, *steps(32), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    last = lockstep("fit", *short, *steps(3), name="last").series("train/loss")
    assert all(last[step] != through.series("train/loss")[step] for step in last)


@pytest.mark.parametrize(
    ("stop", "kept", "interval"),
    [(7, "last", 5), (8, "last", 5), (10, "last", 5), (7, "best", 5), (10, "best", 5), (3, "best", 3)],
)
def test_log_intervals_count_from_the_first_step(lockstep, stop, kept, interval):
    """Lightning's count of steps is one off after a resume from some positions of an epoch, here of 5 steps."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.log_every_n_steps", "4"]
    options += ["--trainer.val_check_interval", str(interval)]
    stopped = lockstep("fit", *options, *steps(stop), name="stopped")
    if kept == "best":
        (stopped.folder / "checkpoints/last.ckpt").unlink()
    resumed = lockstep("fit", *options, *steps(17), "--ckpt_path", "last", name="stopped")
    assert sorted(resumed.series("train/loss")) == [4, 8, 12, 16]


@pytest.mark.slow
def test_a_run_stopped_at_the_end_of_an_epoch_resumes_exactly(lockstep):
    through = lockstep("fit", *OPTIONS, *steps(39), name="through")
    lockstep("fit", *OPTIONS, *steps(26), name="stopped")
    resumed = lockstep("fit", *OPTIONS, *steps(39), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert resumed.series("val/ndcg@10") == through.series("val/ndcg@10")


@pytest.mark.slow
def test_killed_after_the_last_checkpoint(lockstep):
    """Steps after the checkpoint are trained again, and logged once."""
    save = ["--last_checkpoint.every_n_steps", "10"]
    through = lockstep("fit", *OPTIONS, *steps(30), *save, name="through")
    killed = lockstep("fit", *OPTIONS, *steps(20), *save, name="killed")
    with (killed.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 21, "epoch": 1, "time": "", "train/loss": -1.0}) + "\n" + '{"step": 22, "ep')
    resumed = lockstep("fit", *OPTIONS, *steps(30), *save, "--ckpt_path", "last", name="killed")
    assert resumed.series("train/loss") == through.series("train/loss")
    lines = (resumed.folder / "metrics.jsonl").read_text().splitlines()
    assert len([line for line in lines if "train/loss" in line]) == 30


@pytest.mark.slow
def test_a_run_with_accumulation_and_workers_resumes_exactly(lockstep):
    options = [*OPTIONS, "--data.init_args.micro_batch_size", "4", "--data.init_args.num_workers", "1"]
    through = lockstep("fit", *options, *steps(22), name="through")
    lockstep("fit", *options, *steps(17), name="stopped")
    resumed = lockstep("fit", *options, *steps(22), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")


@pytest.mark.slow
def test_from_the_best_checkpoint_when_there_is_no_last(lockstep):
    through = lockstep("fit", *OPTIONS, *steps(30), name="through")
    stopped = lockstep("fit", *OPTIONS, *steps(13), name="stopped")
    (stopped.folder / "checkpoints/last.ckpt").unlink()
    resumed = lockstep("fit", *OPTIONS, *steps(30), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")


@pytest.mark.slow
def test_epochs_that_are_cut_short(lockstep):
    short = [*TINY, "--trainer.limit_train_batches", "5"]
    through = lockstep("fit", *short, "--trainer.max_epochs", "4", name="through")
    lockstep("fit", *short, "--trainer.max_epochs", "2", name="stopped")
    resumed = lockstep("fit", *short, "--trainer.max_epochs", "4", "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")


def test_a_run_killed_before_the_first_checkpoint_starts_from_scratch(lockstep, tmp_path):
    folder = tmp_path / "runs/killed"
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text('{"step": 1, "train/loss": -1.0}\n{"step": 2, "ep{"step": 3}\n')
    options = [*OPTIONS, "--trainer.limit_val_batches", "0"]
    run = lockstep("fit", *options, *steps(3), "--ckpt_path", "last", name="killed")
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    assert sorted(run.series("train/loss")) == [1, 2, 3]
    assert run.series("train/loss")[1] > 0


def test_a_run_that_early_stopping_has_ended_stays_ended(lockstep):
    stopping = [
        "--trainer.callbacks+=EarlyStopping",
        "--trainer.callbacks.monitor=val/ndcg@10",
        "--trainer.callbacks.mode=max",
        "--trainer.callbacks.patience=1",
        "--trainer.callbacks.min_delta=1",
    ]
    options = [*TINY, *stopping, "--trainer.max_epochs", "9"]
    ended = lockstep("fit", *options, name="ended").series("train/loss")
    assert max(ended) == 26, "the first evaluation is the best, the second has not improved by 1"
    assert lockstep("fit", *options, "--ckpt_path", "last", name="ended").series("train/loss") == ended
