"""The promise in the project's name: the same training on any number of processes, and after any stop."""

import json

import pytest

from tests.conftest import TINY

pytestmark = pytest.mark.distributed

EXACT = [*TINY, "--model.init_args.dropout", "0", "--trainer.max_steps", "50", "--trainer.max_epochs", "-1"]


def same_losses(one, other, tolerance=1e-5):
    ours, theirs = one.series("train/loss"), other.series("train/loss")
    assert ours.keys() == theirs.keys(), "not the same steps"
    worst = max(ours, key=lambda step: abs(ours[step] - theirs[step]))
    assert abs(ours[worst] - theirs[worst]) <= tolerance, f"step {worst}: {ours[worst]} and {theirs[worst]}"


def test_one_and_two_processes_train_the_same(lockstep, launch):
    alone = lockstep("fit", *EXACT, name="alone")
    assert sorted(alone.series("train/loss")) == list(range(1, 51))
    accumulated = lockstep("fit", *EXACT, "--data.init_args.micro_batch_size", "4", name="accumulated")
    assert "x 4 accumulation steps" in (accumulated.folder / "train.log").read_text()
    same_losses(accumulated, alone)
    pair = launch("fit", *EXACT, name="pair", processes=2)
    assert "= 2 processes x 8 samples" in pair.output
    same_losses(pair, alone)
    ours, theirs = pair.series("val/ndcg@10"), alone.series("val/ndcg@10")
    assert ours.keys() == theirs.keys()
    # The weights differ in the last digits, so one or two of the 200 users may rank one place off.
    assert all(abs(ours[step] - theirs[step]) < 2 / 200 * 0.4 for step in ours)


def test_evaluation_is_the_same_on_two_processes(lockstep, launch):
    lockstep("fit", *EXACT, name="model")
    options = [*EXACT, "--data.init_args.evaluation_batch_size", "48", "--data.init_args.sampled_100", "true"]
    lockstep("test", *options, name="model")
    both = launch("test", *options, name="model", processes=2)
    lines = map(json.loads, (both.folder / "metrics.jsonl").read_text().splitlines())
    alone, pair = (record for record in lines if "test/ndcg@10" in record)
    # 200 users in batches of 48: the first process has three batches, the second has two and a filler.
    for metric in ("test/ndcg@10", "test/mrr@20", "test/sampled_100/hr@10", "test/baseline/popularity/mrr@10"):
        assert abs(alone[metric] - pair[metric]) <= 1e-9, metric


def test_a_run_goes_on_with_two_processes_where_one_stopped(lockstep, launch):
    # With time-interval attention and hyper-connections, so that DDP sees all parameters that there are.
    model = ["--model.init_args.attention", "time_interval", "--model.init_args.residual", "mhc"]
    through = lockstep("fit", *EXACT, *model, name="through")
    lockstep("fit", *EXACT, *model, "--trainer.max_steps", "31", name="stopped")
    on = launch("fit", *EXACT, *model, "--ckpt_path", "last", name="stopped", processes=2)
    assert "going on after step 31" in on.output
    same_losses(on, through)
