"""The promise in the project's name: the same training on any number of processes, and after any stop."""

import json

import numpy as np
import pytest
import torch

from tests.conftest import TINY
from tests.distributed.sample_log import read, sample_log
from tests.distributed.tiny import FEATURES, TINY_FAMILY, Rows

pytestmark = pytest.mark.distributed

EXACT = [*TINY, "--model.init_args.dropout", "0", "--trainer.max_steps", "50", "--trainer.max_epochs", "-1"]


def same_series(one, other, metric="train/loss", tolerance=1e-5):
    ours, theirs = one.series(metric), other.series(metric)
    assert ours and ours.keys() == theirs.keys(), "not the same steps"
    worst = max(ours, key=lambda step: abs(ours[step] - theirs[step]))
    assert abs(ours[worst] - theirs[worst]) <= tolerance, f"step {worst}: {ours[worst]} and {theirs[worst]}"


# -- a family ----------------------------------------------------------------------------------------------------------


def test_one_and_two_processes_train_the_same(lockstep, launch):
    """Started as a user starts them."""
    alone = lockstep("fit", *EXACT, name="alone")
    assert sorted(alone.series("train/loss")) == list(range(1, 51))
    accumulated = lockstep("fit", *EXACT, "--data.init_args.micro_batch_size", "4", name="accumulated")
    assert "x 4 accumulation steps" in (accumulated.folder / "train.log").read_text()
    same_series(accumulated, alone)
    pair = launch("fit", *EXACT, name="pair", processes=2)
    assert "= 2 processes x 8 samples" in pair.output
    same_series(pair, alone)
    ours, theirs = pair.series("val/ndcg@10"), alone.series("val/ndcg@10")
    assert ours.keys() == theirs.keys()
    # The weights differ in the last digits, so one or two of the 200 users may rank one place off.
    assert all(abs(ours[step] - theirs[step]) < 2 / 200 * 0.4 for step in ours)


def test_evaluation_of_a_family_is_the_same_on_two_processes(lockstep, team):
    lockstep("fit", *EXACT, name="model")
    options = [*EXACT, "--data.init_args.evaluation_batch_size", "48", "--data.init_args.sampled_100", "true"]
    lockstep("test", *options, name="model")
    both = team("test", *options, name="model", processes=2)
    assert both.end() == [0, 0], both.output
    lines = map(json.loads, (both.folder / "metrics.jsonl").read_text().splitlines())
    alone, pair = (record for record in lines if "test/ndcg@10" in record)
    # 200 users in batches of 48: the first process has three batches, the second has two and a filler.
    for metric in ("test/ndcg@10", "test/mrr@20", "test/sampled_100/hr@10", "test/baseline/popularity/mrr@10"):
        assert abs(alone[metric] - pair[metric]) <= 1e-9, metric


def test_a_run_goes_on_with_two_processes_where_one_stopped(lockstep, team):
    # With time-interval attention and hyper-connections, so that DDP sees all parameters that there are.
    model = ["--model.init_args.attention", "time_interval", "--model.init_args.residual", "mhc"]
    through = lockstep("fit", *EXACT, *model, name="through")
    lockstep("fit", *EXACT, *model, "--trainer.max_steps", "31", name="stopped")
    on = team("fit", *EXACT, *model, "--ckpt_path", "last", name="stopped", processes=2)
    assert on.end() == [0, 0], on.output
    assert "going on after step 31" in on.output
    same_series(on, through)


# -- the engine alone --------------------------------------------------------------------------------------------------

# 50 samples in batches of 8: the last global batch of an epoch has 2 samples.
DATA = ["--data.init_args.length", "50", "--data.init_args.batch_size", "8"]
SCHEDULE = {"schedule": "exponential", "decay_steps": 4, "warmup_steps": 3, "learning_rate": 0.01}
MODEL = [part for key, value in SCHEDULE.items() for part in (f"--model.init_args.{key}", str(value))]
OPTIONS = [*TINY_FAMILY, *DATA, *MODEL, "--trainer.max_steps", "20"]


def micro(size):
    return ["--data.init_args.micro_batch_size", str(size)]


def gradients(run):
    """[steps, parameters], equal on all processes."""
    records = read(run.folder, "gradients")
    steps = {record["step"]: record["gradient"] for record in records}
    assert all(record["gradient"] == steps[record["step"]] for record in records), "processes differ"
    return torch.tensor([steps[step] for step in sorted(steps)])


@pytest.fixture
def alone(lockstep):
    return lockstep("fit", *OPTIONS, name="alone")


def test_the_gradient_is_that_of_the_mean_over_the_global_batch(alone):
    """Computed here with torch alone, also of the short last batch of an epoch."""
    weights = torch.nn.Linear(FEATURES, 1)
    with torch.no_grad():
        weights.weight.copy_(torch.linspace(-1, 1, FEATURES)[None])
        weights.bias.zero_()
    optimizer = torch.optim.AdamW(weights.parameters(), betas=(0.9, 0.98), weight_decay=0.0)
    rates = alone.series("train/learning_rate")
    for step, (epoch, samples) in sample_log(alone.folder).items():
        rows = Rows.of(epoch, np.array(samples), np.array(samples))
        features, targets, terms = (torch.as_tensor(part) for part in rows[3:])
        errors = (weights(features)[:, 0] - targets).square()
        optimizer.zero_grad()
        loss = (errors * terms).sum() / terms.sum()
        loss.backward()
        assert abs(loss.item() - alone.series("train/loss")[step + 1]) <= 1e-5
        reference = torch.cat([parameter.grad.flatten() for parameter in weights.parameters()])
        torch.testing.assert_close(gradients(alone)[step], reference, rtol=0, atol=1e-5)
        optimizer.param_groups[0]["lr"] = rates[step + 1]
        optimizer.step()


def shares(run):
    """(processes, accumulation) that a global batch was dealt out to, so that it was not done at once after all."""
    facts = json.loads((run.folder / "environment.json").read_text())
    return facts["processes"], facts["accumulation"]


def same_training(one, other):
    for metric in ("train/loss", "val/loss"):
        same_series(one, other, metric)
    assert one.series("train/learning_rate") == other.series("train/learning_rate"), "schedules count optimizer steps"
    torch.testing.assert_close(gradients(one)[:7], gradients(other)[:7], rtol=0, atol=1e-6)  # one epoch
    assert sample_log(one.folder) == sample_log(other.folder)


@pytest.mark.parametrize("size", [4, 2])
def test_accumulation_changes_nothing(lockstep, alone, size):
    """Plain Lightning weighs the micro-batches of a short last window as those of a full one (lightning#19987)."""
    accumulated = lockstep("fit", *OPTIONS, *micro(size), name="accumulated")
    assert shares(accumulated) == (1, 8 // size)
    same_training(accumulated, alone)


@pytest.mark.parametrize(("processes", "size"), [(2, 4), (2, 2), (4, 2), (4, 1)])
def test_the_number_of_processes_changes_nothing(alone, team, processes, size):
    """Plain Lightning trains with `processes` times the batch and takes the mean of their means."""
    several = team("fit", *OPTIONS, *micro(size), name="several", processes=processes)
    assert several.end(120) == [0] * processes, several.output
    assert shares(several) == (processes, 8 // size // processes)
    same_training(several, alone)


def test_the_same_number_of_processes_trains_the_same_to_the_bit(team):
    """Also after a stop in the middle of an epoch, with dropout."""
    dropout = ["--model.init_args.dropout", "0.3"]

    def pair(name, *more):
        run = team("fit", *OPTIONS, *dropout, *more, name=name, processes=2)
        assert run.end() == [0, 0], run.output
        return run

    first, second = pair("first"), pair("second")
    pair("stopped", "--trainer.max_steps", "11")
    resumed = pair("stopped", "--ckpt_path", "last")
    for other in (second, resumed):
        for metric in ("train/loss", "val/loss", "train/gradient_norm"):
            assert other.series(metric) == first.series(metric)
    assert torch.equal(gradients(first), gradients(second))


@pytest.mark.parametrize("stream", ["false", "true"], ids=["sized", "stream"])
@pytest.mark.parametrize(("processes", "samples", "size"), [(2, 5, 2), (4, 3, 2)])
def test_evaluation_sees_every_sample_once(lockstep, team, processes, samples, size, stream):
    """Fewer samples than processes, too. Plain Lightning repeats samples until all processes have as many."""
    settings = {"evaluation_length": samples, "evaluation_batch_size": size, "stream": stream}
    given = [part for key, value in settings.items() for part in (f"--data.init_args.{key}", str(value))]
    options = [*OPTIONS, *given]
    lockstep("fit", *options, "--trainer.max_steps", "3", "--trainer.limit_val_batches", "0", name="model")
    last = ["--ckpt_path", "last"]
    run = lockstep("test", *options, *last, name="model")
    lockstep("predict", *options, *last, name="model")
    alone = (run.folder / "predictions.jsonl").read_text()
    (run.folder / "predictions.jsonl").unlink()
    (run.folder / "evaluated/0.jsonl").unlink()
    for command in ("test", "predict"):
        several = team(command, *options, *last, name="model", processes=processes)
        assert several.end(120) == [0] * processes, several.output
    seen = [sample for record in read(run.folder, "evaluated") for sample in record["samples"]]
    assert sorted(seen) == list(range(samples))
    one, other = map(json.loads, (run.folder / "figures.jsonl").read_text().splitlines())
    assert one["samples"] == other["samples"] == samples
    assert abs(one["loss"] - other["loss"]) <= 1e-9
    assert (run.folder / "predictions.jsonl").read_text() == alone and len(alone.splitlines()) == samples


@pytest.mark.parametrize(("limit", "stream"), [("3", "false"), ("0.5", "false"), ("3", "true")])
def test_a_limited_evaluation_is_of_the_same_samples(lockstep, team, limit, stream):
    """3 of 6 batches of 2. Plain Lightning counts the batches of each process: 3 on two processes are 12 samples."""
    options = [
        *OPTIONS, "--data.init_args.evaluation_batch_size", "2", "--data.init_args.stream", stream,
        "--trainer.limit_val_batches", limit, "--trainer.max_steps", "14",
    ]  # fmt: skip
    alone = lockstep("fit", *options, name="alone")
    several = team("fit", *options, name="several", processes=2)
    assert several.end() == [0, 0], several.output
    seen = []
    for run in (alone, several):
        figures = [json.loads(line) for line in (run.folder / "figures.jsonl").read_text().splitlines()]
        assert [figure["samples"] for figure in figures] == [6, 6]
        seen.append(sorted(sample for one in read(run.folder, "evaluated") for sample in one["samples"]))
    assert seen[0] == seen[1] and len(set(seen[0])) == 6
    same_series(several, alone, "val/loss")
