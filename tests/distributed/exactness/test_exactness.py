"""Training is the same on any world size, and after any stop: losses, gradients, weights, evaluation."""

import json

import numpy as np
import pytest
import torch

from engine.checkpointing.verification import load_lazily
from tests.support.families.tiny_linear import FEATURES, Rows
from tests.support.outputs.jsonl import read_jsonl
from tests.support.outputs.metric_series import assert_same_series
from tests.support.outputs.sample_log import read, sample_log
from tests.support.ranks.exact_training import EXACT, OPTIONS, gradients, micro, same_training
from tests.tiers import slow

# -- a family ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launcher", ["torchrun's variables", slow("lightning")])
def test_one_and_two_processes_train_the_same(lockstep, team, launcher):
    """The recommender's dropout is a function of the sample, so its masks are the same on any number of ranks."""
    options = [*EXACT, "--model.init_args.dropout", "0.3"]
    alone = lockstep("fit", *options, name="alone")
    assert sorted(alone.series("train/loss")) == list(range(1, 21))
    if launcher == "lightning":  # as a user without a launcher starts them
        accumulated = lockstep("fit", *options, "--data.init_args.micro_batch_size", "4", name="accumulated")
        assert "x 4 accumulation steps" in (accumulated.folder / "train.log").read_text()
        assert_same_series(accumulated, alone)
        pair = team("fit", *options, "--trainer.devices", "2", "--trainer.strategy", "ddp", name="pair", processes=1)
    else:
        pair = team("fit", *options, name="pair", processes=2)
    assert set(pair.end(150)) == {0}, pair.output
    assert "= 2 ranks x 8 samples" in pair.output
    assert_same_series(pair, alone)
    ours, theirs = pair.series("val/ndcg@10"), alone.series("val/ndcg@10")
    assert ours.keys() == theirs.keys()
    # The weights differ in the last digits, so one or two of the 200 users may rank one position off.
    assert all(abs(ours[step] - theirs[step]) < 2 / 200 * 0.4 for step in ours)


@pytest.mark.slow
def test_evaluation_of_a_family_is_the_same_on_two_processes(lockstep, team):
    lockstep("fit", *EXACT, name="model")
    options = [*EXACT, "--data.init_args.evaluation_batch_size", "48", "--data.init_args.sampled_100", "true"]
    options += ["--model.init_args.baselines", "[popularity, item-knn, ease]"]
    options += ["--model.init_args.beyond_accuracy", "true"]
    ranks = lockstep("test", *options, name="model").folder / "ranks-test.npz"
    of_one = ranks.read_bytes()
    ranks.unlink()
    both = team("test", *options, name="model", processes=2)
    assert both.end() == [0, 0], both.output
    alone, pair = (record for record in both.records if "test/ndcg@10" in record)
    # 200 users in batches of 48: the first process has three batches, the second has two and a filler.
    for metric in ("test/ndcg@10", "test/mrr@20", "test/sampled_100/hr@10", "test/baseline/popularity/mrr@10"):
        assert abs(alone[metric] - pair[metric]) <= 1e-9, metric
    for metric in ("test/coverage@10", "test/novelty@10", "test/popularity@10"):
        assert alone[metric] == pair[metric] > 0, metric
    assert ranks.read_bytes() == of_one, "the rank of each user"
    for name in ("item-knn", "ease"):
        metric = f"test/baseline/{name}/ndcg@10"
        assert alone[metric] == pair[metric] > 0, metric


def test_a_run_of_one_rank_resumes_on_two(lockstep, team):
    # With time-interval attention and hyper-connections, so that DDP sees all parameters that there are.
    assert_resumes_on_two_ranks(
        lockstep, team, {"attention": "time_interval", "residual": "mhc", "sinkhorn_iterations": 3}
    )


GATED = {"residual": "gated_mhc", "feed_forward": "swiglu", "sinkhorn_iterations": 3}
WINDOWS = ["--data.init_args.max_length", "8", "--data.init_args.windows", "random"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "data"),
    [({"attention": "hstu", **GATED}, []), ({"attention": "time_interval"}, WINDOWS)],
    ids=["hstu-gated", "time_interval-random windows"],
)
def test_a_run_with_request_time_resumes_on_two_ranks(lockstep, team, layers, data):
    network = {"time_buckets": "log", "request_time": "true", **layers}
    assert_resumes_on_two_ranks(lockstep, team, network, *data, "--best_checkpoint.monitor", "val/request_time/ndcg@10")


def assert_resumes_on_two_ranks(lockstep, team, settings, *options):
    model = [part for key, value in settings.items() for part in (f"--model.init_args.{key}", str(value))]
    model += options
    uninterrupted = lockstep("fit", *EXACT, *model, name="through")
    lockstep("fit", *EXACT, *model, "--trainer.max_steps", "16", name="stopped")
    resumed = team("fit", *EXACT, *model, "--ckpt_path", "last", name="stopped", processes=2)
    assert resumed.end() == [0, 0], resumed.output
    assert "resuming after step 16" in resumed.output
    assert_same_series(resumed, uninterrupted)


# -- the engine alone --------------------------------------------------------------------------------------------------


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
    samples_by_step = sample_log(alone.folder)
    assert len(samples_by_step) == len(gradients(alone)) > 1
    for step, (epoch, samples) in samples_by_step.items():
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


@pytest.mark.parametrize(("processes", "size"), [(1, 4), (2, 2)])
def test_a_users_callback_sees_the_gradient_of_the_mean(alone, lockstep, team, processes, size):
    """Lightning calls callbacks before the module; they see it from the first step on, accumulated and over ranks."""
    recorder = ["--trainer.callbacks+=tests.support.ranks.user_callback.GradientRecorder"]
    if processes == 1:
        run = lockstep("fit", *OPTIONS, *micro(size), *recorder, name="recorded")
    else:
        run = team("fit", *OPTIONS, *micro(size), *recorder, name="recorded", processes=processes)
        assert run.end(120) == [0] * processes, run.output
    assert shares(run) == (processes, 2)
    seen = gradients(run, "after_backward")
    assert torch.equal(seen, gradients(run)), "no digit changes between the hooks"
    # `alone` computes a whole batch at once; test_the_gradient_is_that_of_the_mean_... compares it with torch alone.
    torch.testing.assert_close(seen[:7], gradients(alone)[:7], rtol=0, atol=1e-6)


def shares(run):
    """(processes, accumulation) that a global batch was dealt out to, so that it was not done at once after all."""
    facts = json.loads((run.folder / "environment.json").read_text())
    return facts["processes"], facts["accumulation"]


@pytest.mark.parametrize("size", [4, slow(2)])
def test_accumulation_changes_nothing(lockstep, alone, size):
    """Plain Lightning weighs the micro-batches of a short last window as those of a full one (lightning#19987)."""
    accumulated = lockstep("fit", *OPTIONS, *micro(size), name="accumulated")
    assert shares(accumulated) == (1, 8 // size)
    same_training(accumulated, alone)


@pytest.mark.parametrize(("processes", "size"), [(2, 4), slow(2, 2), slow(4, 2), slow(4, 1)])
def test_the_number_of_processes_changes_nothing(alone, team, processes, size):
    """Plain Lightning trains with `processes` times the batch and takes the mean of their means."""
    several = team("fit", *OPTIONS, *micro(size), name="several", processes=processes)
    assert several.end(120) == [0] * processes, several.output
    assert shares(several) == (processes, 8 // size // processes)
    same_training(several, alone)


def test_the_same_number_of_processes_trains_the_same_to_the_bit(team):
    """A resumed run is equal also after a stop in the middle of an epoch, with dropout."""
    dropout = ["--model.init_args.dropout", "0.3"]

    def pair(name, *more):
        run = team("fit", *OPTIONS, *dropout, *more, name=name, processes=2)
        assert run.end() == [0, 0], run.output
        return run

    uninterrupted = pair("through")
    pair("stopped", "--trainer.max_steps", "11")
    resumed = pair("stopped", "--ckpt_path", "last")
    for metric in ("train/loss", "val/loss", "train/gradient_norm"):
        expected = uninterrupted.series(metric)  # the first start has validated its last step, too
        assert {step: value for step, value in resumed.series(metric).items() if step in expected} == expected
    assert torch.equal(gradients(uninterrupted), gradients(resumed))


@pytest.mark.slow
def test_three_processes_resume_to_the_bit(team):
    """On more than two the order of a sum matters, and DDP by itself changes it after the first step of a start."""
    options = [*EXACT, "--data.init_args.batch_size", "18", "--trainer.max_steps", "14"]  # 12 steps an epoch

    def three(name, *more):
        run = team("fit", *options, *more, name=name, processes=3)
        assert run.end(120) == [0, 0, 0], run.output
        return run

    uninterrupted = three("through", "--last_checkpoint.every_n_steps", "7", "--last_checkpoint.keep", "3")
    resumed = three("resumed", "--ckpt_path", str(uninterrupted.folder / "checkpoints/last-2.ckpt"))
    assert "resuming after step 7 " in resumed.output
    weights = [load_lazily(run.folder / "checkpoints/last.ckpt")["state_dict"] for run in (uninterrupted, resumed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())


@pytest.mark.parametrize("stream", ["false", slow("true")], ids=["sized", "stream"])
@pytest.mark.parametrize(("processes", "samples", "size"), [(2, 5, 2), slow(4, 3, 2)])
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
    first, second = read_jsonl(run.folder / "evaluations.jsonl")
    assert first["samples"] == second["samples"] == samples
    assert abs(first["loss"] - second["loss"]) <= 1e-9
    assert (run.folder / "predictions.jsonl").read_text() == alone
    assert len(alone.splitlines()) == samples


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "stream"), [("3", "false"), slow("0.5", "false"), slow("3", "true")])
def test_a_limited_evaluation_takes_the_same_samples(lockstep, team, limit, stream):
    """3 of 6 batches of 2. Plain Lightning counts the batches of each process: 3 on two processes are 12 samples."""
    options = [
        *OPTIONS,
        "--data.init_args.evaluation_batch_size",
        "2",
        "--data.init_args.stream",
        stream,
        "--trainer.limit_val_batches",
        limit,
        "--trainer.max_steps",
        "14",
    ]
    alone = lockstep("fit", *options, name="alone")
    several = team("fit", *options, name="several", processes=2)
    assert several.end() == [0, 0], several.output
    seen = []
    for run in (alone, several):
        evaluations = read_jsonl(run.folder / "evaluations.jsonl")
        assert [evaluation["samples"] for evaluation in evaluations] == [6, 6]
        seen.append(sorted(sample for record in read(run.folder, "evaluated") for sample in record["samples"]))
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 6
    assert_same_series(several, alone, ["val/loss"])
