"""Tests when best.ckpt and last.ckpt are saved."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning.fabric.utilities.exceptions import MisconfigurationException

from callbacks.checkpointing.best_checkpoint import BestCheckpoint
from callbacks.checkpointing.last_checkpoint import LastCheckpoint
from commands.report.page_data import page_content
from engine.checkpointing import checkpoint_io
from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.discovery import newest_verified
from engine.checkpointing.verification import CorruptCheckpointError, verify
from engine.distributed.errors import CollectiveInputError
from tests.conftest import TINY
from tests.support.families.tiny_linear import TINY_FAMILY


def steps_of(folder):
    return {
        path.name: torch.load(path, weights_only=True)["global_step"] for path in (folder / "checkpoints").iterdir()
    }


def test_best_and_last_are_apart(lockstep):
    """The best stays where the metric was best; the last follows the training (Lightning's `save_last` would not)."""
    # At this rate the model gets worse after its first epoch.
    rates = ["--model.init_args.learning_rate", "3", "--model.init_args.warmup_steps", "0"]
    run = lockstep(
        "fit", *TINY, *rates, "--trainer.max_epochs", "3", "--best_checkpoint.monitor", "val/mrr@20", name="a"
    )
    values = run.series("val/mrr@20")
    best = max(values, key=values.__getitem__)
    assert steps_of(run.folder) == {"best.ckpt": best, "last.ckpt": 39, "last-1.ckpt": 26}
    low = lockstep(
        "fit",
        *TINY,
        *rates,
        "--trainer.max_epochs",
        "3",
        "--best_checkpoint.monitor",
        "val/mrr@20",
        "--best_checkpoint.mode",
        "min",
        name="b",
    )
    assert steps_of(low.folder)["best.ckpt"] == min(values, key=values.__getitem__) != best


def test_the_last_is_saved_inside_an_epoch(lockstep):
    run = lockstep("fit", *TINY, "--last_checkpoint.every_n_steps", "4", "--trainer.max_steps", "7", name="a")
    expected = {"best.ckpt": 7, "last.ckpt": 7, "last-1.ckpt": 4}
    assert steps_of(run.folder) == expected, "also at the end of a run that is bounded by steps"


def test_the_newest_is_what_was_saved_last_on_a_machine_whose_clock_is_behind_too(lockstep, monkeypatch):
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10"]
    run = lockstep("fit", *options, "--trainer.max_steps", "4", name="a")
    monkeypatch.setattr(checkpoint_io, "time", SimpleNamespace(time=lambda: 1000.0, monotonic=lambda: 0.0))
    lockstep("fit", *options, "--trainer.max_steps", "6", "--ckpt_path", "last", name="a")
    assert newest_verified(run.folder).name == "last.ckpt"
    assert steps_of(run.folder)["last.ckpt"] == 6


def test_checkpoints_load_without_running_code(trained):
    """weights_only refuses everything but tensors and plain containers."""
    paths = list((trained / "runs").rglob("*.ckpt"))
    assert paths
    for path in paths:
        checkpoint = torch.load(path, weights_only=True)
        assert {"state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch"} <= checkpoint.keys()


@pytest.mark.parametrize("name", ["every_n_steps", "keep_every_n_steps"])
def test_saving_every_0_steps_is_refused(name):
    with pytest.raises(ValueError, match=f"last_checkpoint.{name} must be at least 1, got 0"):
        LastCheckpoint(**{name: 0})


@pytest.mark.parametrize("asynchronous", [False, True])
def test_kept_checkpoints_stay_and_resume(lockstep, asynchronous):
    options = [
        *TINY_FAMILY,
        "--data.init_args.batch_size",
        "10",
        "--trainer.max_epochs",
        "2",
        "--checkpoints.asynchronous",
        str(asynchronous),
        "--last_checkpoint.every_n_steps",
        "4",
    ]
    uninterrupted = lockstep("fit", *options, "--last_checkpoint.keep_every_n_steps", "3", name="whole")
    steps = uninterrupted.series("train/loss")
    kept = {f"step-{step}.ckpt": step for step in range(3, max(steps) + 1, 3)}
    found = steps_of(uninterrupted.folder)
    assert len(kept) >= 3
    assert found.items() >= kept.items()
    assert found.keys() - kept.keys() == {"best.ckpt", "last.ckpt", "last-1.ckpt"}
    for name in kept:
        verify(uninterrupted.folder / "checkpoints" / name)
    events = page_content([uninterrupted.folder], uninterrupted.folder / "page.html")["runs"][0]["events"]
    listed = [event["message"] for event in events if event["event"] == "checkpoint_kept"]
    assert listed == [f"kept {Path('runs/whole/checkpoints')}/{name}: no rotation deletes it" for name in kept]
    for path in (uninterrupted.folder / "checkpoints").glob("[bl]*.ckpt"):
        path.unlink()
    (uninterrupted.folder / "checkpoints" / max(kept, key=kept.__getitem__)).unlink()
    first = str(uninterrupted.folder / "checkpoints/step-3.ckpt")
    resumed = lockstep("fit", *options, "--ckpt_path", first, name="resumed").series("train/loss")
    assert {step: loss for step, loss in resumed.items() if step > 3} == {
        step: loss for step, loss in steps.items() if step > 3
    }
    assert newest_verified(uninterrupted.folder).name == list(kept)[-2], "--ckpt_path last takes it"


def test_keeping_0_best_checkpoints_is_refused():
    with pytest.raises(ValueError, match="best_checkpoint.keep must be at least 1, got 0"):
        BestCheckpoint("val/x", keep=0)


LIGHTNING = {"state_dict": {}, "pytorch-lightning_version": "2.6.6"}


class FakeTrainer:
    """Stand-in for a trainer, with what BestCheckpoint uses."""

    fast_dev_run, sanity_checking, is_global_zero = False, False, True

    def __init__(self, folder, asynchronous=False):
        self.default_root_dir, self.state, self.callback_metrics = folder, SimpleNamespace(fn="fit"), {}
        plugin = VerifiedCheckpointIO(asynchronous=asynchronous)
        self.strategy = SimpleNamespace(checkpoint_io=plugin, broadcast=lambda content: content)

    def begin(self, **settings):
        self.best = BestCheckpoint("val/x", **settings)
        self.best.setup(self, None, "fit")
        self.best.on_train_start(self, None)

    def evaluate(self, score):
        self.callback_metrics = {"val/x": torch.tensor(score), "val/y": torch.tensor(1.0)}
        self.score = score
        self.best.on_validation_end(self, None)
        self.strategy.checkpoint_io.finish_writing()

    def save_checkpoint(self, path, weights_only):
        state = {self.best.state_key: self.best.state_dict()}
        self.strategy.checkpoint_io.save_checkpoint({**LIGHTNING, "callbacks": state, "score": self.score}, path)

    def scores(self):
        folder = self.default_root_dir / "checkpoints"
        return [torch.load(path, weights_only=True)["score"] for path in self.best.files if path in folder.iterdir()]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def training(request, tmp_path):
    return FakeTrainer(tmp_path, request.param)


def test_the_best_are_kept_in_order(training):
    training.begin(keep=3)
    for score, files in (
        (0.2, [0.2]),
        (0.5, [0.5, 0.2]),
        (0.5, [0.5, 0.5, 0.2]),
        (0.1, [0.5, 0.5, 0.2]),
        (0.3, [0.5, 0.5, 0.3]),
        (math.nan, [0.5, 0.5, 0.3]),
        (0.9, [0.9, 0.5, 0.5]),
    ):
        training.evaluate(score)
        assert training.scores() == files
    assert [path.name for path in training.best.files] == ["best.ckpt", "best-2.ckpt", "best-3.ckpt"]
    training.begin(keep=3)  # the next start reads the scores from the files
    training.evaluate(0.4)
    assert training.scores() == [0.9, 0.5, 0.5]
    training.evaluate(0.7)
    assert training.scores() == [0.9, 0.7, 0.5]
    training.begin(keep=1)  # a smaller `keep` removes the surplus at the end
    training.best.on_train_end(training, None)
    assert training.scores() == [0.9]
    assert len(list((training.default_root_dir / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_scores_the_last_is_the_best(training, mode):
    training.begin(mode=mode)
    for _ in range(2):
        training.evaluate(1.0)
        (training.default_root_dir / "checkpoints/best.ckpt").rename(training.default_root_dir / "seen.ckpt")
    assert torch.load(training.default_root_dir / "seen.ckpt", weights_only=True)["score"] == 1.0


def test_the_smallest_may_be_the_best(training):
    training.begin(mode="min", keep=2)
    for score in (math.nan, 0.5, 0.7, 0.3):
        training.evaluate(score)
    assert training.scores() == [0.3, 0.5]
    training.begin(mode="max")  # scores by another mode do not count
    training.evaluate(0.1)
    assert training.scores() == [0.1]


def test_a_best_that_could_not_be_saved_is_tried_again(training, monkeypatch):
    """Lightning counts it as saved, and best.ckpt stays outdated."""
    training.begin()
    training.evaluate(0.2)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_io, "write_temp", lambda *_: (_ for _ in ()).throw(OSError(28, "disk full")))
        training.evaluate(0.9)
        training.best.io.sync_outcomes(training.strategy)
    training.evaluate(0.4)
    assert training.scores() == [0.4]


def test_a_corrupt_best_is_replaced(training, messages):
    training.begin()
    training.evaluate(0.9)
    path = training.best.files[0]
    path.write_bytes(path.read_bytes()[:300])
    training.begin()
    assert any("best.ckpt is corrupt" in line and "the next evaluation replaces it" in line for line in messages)
    training.evaluate(0.1)
    assert training.scores() == [0.1]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.sampled_from(["none", "corrupt", 0.125, 0.375, 0.625, 0.875]), min_size=1, max_size=4),
    scores=st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), max_size=4),
    mode=st.sampled_from(["min", "max"]),
)
def test_a_corrupt_checkpoint_never_replaces_a_good_one(tmp_path_factory, rows, scores, mode):
    """Whichever files are missing or corrupt, good files stay in order and new files are inserted by score."""
    training = FakeTrainer(tmp_path_factory.mktemp("run"))
    training.best = BestCheckpoint("val/x", mode=mode, keep=len(rows))
    training.best.setup(training, None, "fit")
    training.best.files[0].parent.mkdir(parents=True)
    for path, found in zip(training.best.files, rows, strict=True):
        if found == "corrupt":
            path.write_bytes(b"PK cut short")
        elif found != "none":
            training.best._score = training.score = found
            training.strategy.checkpoint_io.save_checkpoint(
                {**LIGHTNING, "callbacks": {training.best.state_key: training.best.state_dict()}, "score": found}, path
            )
    training.strategy.checkpoint_io._rotations.clear()
    training.begin(mode=mode, keep=len(rows))
    best = sorted([found for found in rows if isinstance(found, float)], reverse=mode == "max")
    assert good(training) == best
    for score in scores:
        training.evaluate(score)
        best = sorted([*best, score], reverse=mode == "max")[: len(rows)]
        assert good(training) == best
        assert training.best._scores[: len(best)] == best


def good(training):
    """Return the scores of the intact checkpoints, which must come first."""
    found = []
    for path in training.best.files:
        try:
            verify(path)
        except (CorruptCheckpointError, FileNotFoundError):
            found.append(None)
        else:
            found.append(torch.load(path, weights_only=True)["score"])
    whole = [score for score in found if score is not None]
    assert found[: len(whole)] == whole
    return whole


def test_a_metric_that_is_not_there(training):
    training.begin()
    training.best.monitor = "val/z"
    with pytest.raises(CollectiveInputError, match=r"monitor is 'val/z', which is not logged. .* \['val/x', 'val/y'\]"):
        training.evaluate(0.1)


def test_a_metric_that_is_not_there_is_noticed_before_training(lockstep):
    """Plain Lightning raises after the first epoch."""
    options = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--trainer.max_steps", "6"]
    with pytest.raises(
        MisconfigurationException, match=r"monitor is 'val/foo', which is not logged. .* \['val/loss'\]"
    ):
        lockstep("fit", *options, "--best_checkpoint.monitor", "val/foo", name="a")
    assert not Path("runs/a/gradients").exists(), "no step was taken"
