"""Tests item vectors that are sharded by rows: training and ranks equal those of one process with the whole table."""

import shutil
import signal

import pytest
import torch
import yaml

from engine.checkpointing.sharded.sharded_state import GROUPS, read_full_checkpoint
from tests.conftest import Run
from tests.support.outputs.metric_series import assert_same_series
from tests.support.recommender.row_training import ADAGRAD, EXACT, LAZY, assert_equal_states, saved, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # several runs in each

# The 61 rows of the table are not divisible by 2 or 3, and their gradients are clipped with all others.
CLIPPED = [*EXACT, "--trainer.gradient_clip_val", "0.1", "--data.init_args.batch_size", "12"]
TRAININGS = {
    "sampled_softmax": ADAGRAD,
    "gbce": [*LAZY, "--model.init_args.loss", "gbce"],
    "in_batch": [*ADAGRAD, "--data.init_args.negatives", "mixed", "--data.init_args.batch_negatives", "9"],
    "bce": [*ADAGRAD, "--model.init_args.loss", "bce", "--data.init_args.num_negatives", "1"],
    "bf16": [*LAZY, "--trainer.precision", "bf16-mixed"],
}
METRICS = ("train/loss", "train/gradient_norm", "val/ndcg@10", "val/hr@10", "val/mrr@20")


@pytest.fixture
def shards(tmp_path):
    """Return the options of a training in shards, given the form of its checkpoints."""

    def options(checkpoints="sharded", **settings):
        strategy = {"class_path": "engine.strategies.fsdp.VerifiedFSDPStrategy"}
        strategy["init_args"] = {"state_dict_type": checkpoints, **settings}
        keep = {name: {"keep": 2} for name in ("best_checkpoint", "last_checkpoint")}
        path = tmp_path / f"{checkpoints}.yaml"
        path.write_text(yaml.safe_dump({"trainer": {"strategy": strategy}, **keep}))
        return ["--config", str(path)]

    return options


@pytest.mark.parametrize("training", TRAININGS)
def test_any_number_of_ranks_trains_as_one_process_does(lockstep, team, shards, training):
    options = [*TRAININGS[training], *CLIPPED, *steps(8)]
    alone = lockstep("fit", *options, name="alone")
    assert len(alone.series("train/loss")) == 8
    assert "val/ndcg@10" in (alone.folder / "metrics.jsonl").read_text()
    if training == "bf16":  # FSDP rounds weights, which autocast also does
        pair = team("fit", *options, *shards(), name="2", processes=2).succeeded(200)
        assert_same_series(pair, alone, tolerance=0.02)
        return
    for processes in (2, 3) if training == "sampled_softmax" else (2,):
        assert_same_series(
            team("fit", *options, *shards(), name=str(processes), processes=processes).succeeded(200), alone, METRICS
        )


def content(run, form):
    """Weights and optimizer state of the last checkpoint, from one file or from shards."""
    if form == "full":
        return saved(run)
    folder = run.folder / "checkpoints/last.ckpt"
    progress = torch.load(folder / "meta.pt", weights_only=True)
    return read_full_checkpoint(folder, progress[GROUPS])


@pytest.mark.parametrize("form, options", [("sharded", ADAGRAD), ("full", LAZY)])
def test_a_checkpoint_resumes_on_any_number_of_ranks(lockstep, team, shards, form, options):
    """On as many to the bit, after a kill, too. One process has the whole table and no shards."""
    options = [*options, *CLIPPED]
    sharded, save = [*options, *shards(form)], ["--last_checkpoint.every_n_steps", "5"]
    alone = lockstep("fit", *options, *steps(12), name="alone")
    straight = team("fit", *sharded, *steps(12), name="straight", processes=2).succeeded(200)
    begun = team("fit", *sharded, *save, *steps(1000), name="begun", processes=2)
    begun.wait_for("checkpoints/last.ckpt")
    for process in range(2):
        begun.signal(process, signal.SIGKILL)
    begun.end(100)
    numbers = (1, 2, 3) if form == "sharded" else (1, 2)
    runs = {processes: Run(straight.folder.parent / str(processes)) for processes in numbers}
    for run in runs.values():
        shutil.copytree(begun.folder, run.folder)
    resumed = ["--ckpt_path", "last", *steps(12)]
    lockstep("fit", *options, *resumed, name="1")
    for processes in numbers[1:]:
        team("fit", *sharded, *resumed, name=str(processes), processes=processes).succeeded(200)
    assert runs[2].series("train/loss") == straight.series("train/loss"), "to the bit"
    assert_equal_states(content(runs[2], form), content(straight, form))
    for run in (straight, *runs.values()):
        assert_same_series(run, alone, ["train/loss", "train/gradient_norm"])
    replicated, sharded = content(alone, "full"), content(runs[numbers[-1]], form)
    assert replicated["state_dict"].keys() == sharded["state_dict"].keys()
    torch.testing.assert_close(
        sharded["state_dict"]["encoder.items.weight"],
        replicated["state_dict"]["encoder.items.weight"],
        rtol=0,
        atol=1e-3,
    )


def test_ranks_and_predictions_are_those_of_one_process(lockstep, team, shards):
    """Also the sampled protocol, coverage and previews."""
    options = [*ADAGRAD, *CLIPPED, "--data.init_args.evaluation_batch_size", "7", *steps(6)]
    options += ["--data.init_args.sampled_100", "true", "--model.init_args.beyond_accuracy", "true"]
    run = team("fit", *options, *shards(), name="a", processes=2).succeeded(200)
    found = []
    for processes in (1, 3):
        for command in ("test", "predict"):
            if processes == 1:
                lockstep(command, *options, name="a")
            else:
                team(command, *options, *shards(), name="a", processes=processes).succeeded(200)
        found.append([(run.folder / name).read_bytes() for name in ("ranks-test.npz", "predictions.jsonl")])
    assert found[0] == found[1]
    metrics = (run.folder / "metrics.jsonl").read_text()
    assert "test/sampled_100/ndcg@10" in metrics
    assert "test/coverage@10" in metrics
    values = [set(run.series(f"test/{name}").values()) for name in ("ndcg@10", "sampled_100/ndcg@10", "coverage@10")]
    assert all(len(value) == 1 for value in values), values
