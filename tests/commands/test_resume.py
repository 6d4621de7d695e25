"""A run that was stopped and resumed is the run that went through, to the bit."""

import json

from tests.conftest import TINY

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
    assert resumed.series("val/ndcg@10") == through.series("val/ndcg@10")


def test_stopped_at_the_end_of_an_epoch(lockstep):
    through = lockstep("fit", *OPTIONS, *steps(39), name="through")
    lockstep("fit", *OPTIONS, *steps(26), name="stopped")
    resumed = lockstep("fit", *OPTIONS, *steps(39), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert resumed.series("val/ndcg@10") == through.series("val/ndcg@10")


def test_killed_after_the_last_checkpoint(lockstep):
    """What was trained after the checkpoint is trained again, and written once."""
    save = ["--last_checkpoint.every_n_steps", "10"]
    through = lockstep("fit", *OPTIONS, *steps(30), *save, name="through")
    killed = lockstep("fit", *OPTIONS, *steps(20), *save, name="killed")
    with (killed.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 21, "epoch": 1, "time": "", "train/loss": -1.0}) + "\n" + '{"step": 22, "ep')
    resumed = lockstep("fit", *OPTIONS, *steps(30), *save, "--ckpt_path", "last", name="killed")
    assert resumed.series("train/loss") == through.series("train/loss")
    lines = (resumed.folder / "metrics.jsonl").read_text().splitlines()
    assert len([line for line in lines if "train/loss" in line]) == 30


def test_with_accumulation_and_workers(lockstep):
    options = [*OPTIONS, "--data.init_args.micro_batch_size", "4", "--data.init_args.num_workers", "1"]
    through = lockstep("fit", *options, *steps(22), name="through")
    lockstep("fit", *options, *steps(17), name="stopped")
    resumed = lockstep("fit", *options, *steps(22), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
