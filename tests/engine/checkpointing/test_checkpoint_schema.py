"""Tests checkpoints that are complete but have wrong contents: each is refused with its key, or loads and trains."""

import copy
import logging
import math
import warnings
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lightning.fabric.utilities.exceptions import MisconfigurationException

from callbacks.checkpointing.best_checkpoint import BestCheckpoint
from callbacks.checkpointing.early_stopping_resume import EarlyStoppingFromConfig
from callbacks.checkpointing.last_checkpoint import LastCheckpoint
from callbacks.checkpointing.pending_validation import ResumePendingValidation
from callbacks.guards.bad_sample_limit import BadSampleLimit
from callbacks.guards.finite_guard import FiniteGuard
from callbacks.logging.results_table import ResultsTable
from callbacks.logging.run_log import RunLog
from commands.cli.trainer import LockstepTrainer
from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.checkpoint_schema import require_structure
from engine.checkpointing.discovery import newest_verified
from engine.checkpointing.verification import CorruptCheckpointError
from engine.distributed.errors import CollectiveError
from tests.support.families.tiny_linear import TinyData, TinyModule

REFUSALS = (ValueError, MisconfigurationException, CollectiveError)


def train(folder, steps, checkpoint=None):
    """Train to a step; return the number of steps that this call has trained."""
    trainer = LockstepTrainer(
        default_root_dir=folder,
        accelerator="cpu",
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        plugins=[VerifiedCheckpointIO()],
        callbacks=[
            RunLog(),
            BadSampleLimit(),
            EarlyStoppingFromConfig(),
            ResumePendingValidation(),
            ResultsTable(),
            FiniteGuard(),
            BestCheckpoint("val/loss", "min"),
            LastCheckpoint(every_n_steps=1000),
        ],
    )
    module = TinyModule()
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        trainer.fit(module, datamodule=TinyData(batch_size=10), ckpt_path=checkpoint)
    return trainer.global_step


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Content of a checkpoint of the 7th step, in the middle of an epoch after a validation."""
    folder = tmp_path_factory.mktemp("saved")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    train(folder, 7)
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)


def resume(tmp_path_factory, content, steps=8):
    folder = tmp_path_factory.mktemp("resumed")
    torch.save(content, folder / "wrong.ckpt")
    return train(folder, steps, folder / "wrong.ckpt")


def paths(content, prefix=()):
    """The path of every value in nested containers."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from paths(value, (*prefix, key))


def replaced(content, path, value):
    changed = copy.deepcopy(content)
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    if value is REMOVED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return changed


REMOVED = object()
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([torch.ones(3), torch.ones(3, dtype=torch.int64), torch.tensor(True), torch.empty(0), 10**30]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=3,
)


def test_a_saved_checkpoint_passes_and_resumes(saved, tmp_path_factory):
    assert resume(tmp_path_factory, saved) == 8
    require_structure(saved, "last.ckpt")


WRONG = {
    "loops": (("loops",), None, "loops is None, expected a dict"),
    "loop": (("loops", "fit_loop", "epoch_loop.batch_progress"), {}, r"batch_progress has no total, current, is_last"),
    "counter": (("loops", "fit_loop", "epoch_progress", "current", "ready"), -1, "ready is -1, expected a count"),
    "optimizer": (("optimizer_states",), [5], r"optimizer_states\[0\] is 5, expected a dict"),
    "no optimizer": (("optimizer_states",), [], "optimizer_states is a list of 0, expected a list of 1"),
    "moments": (("optimizer_states", 0, "state", 0, "exp_avg"), torch.ones(3), "exp_avg is a tensor of float32"),
    "moment's type": (("optimizer_states", 0, "state", 1, "exp_avg"), None, "state.1.exp_avg is None, expected a"),
    "groups": (("optimizer_states", 0, "param_groups"), [], r"param_groups of \[\] parameters, expected \[1, 1\]"),
    "schedule": (("lr_schedulers",), [{"last_epoch": "7"}], r"lr_schedulers\[0\].last_epoch is '7', expected a count"),
    "weights": (("state_dict",), [], "state_dict is a list of 0, expected a dict"),
    "weight": (("state_dict", "linear.weight"), 3, "state_dict.linear.weight is 3, expected a tensor"),
    "type of a weight": (("state_dict", "linear.bias"), torch.ones(1).bool(), "different types: linear.bias"),
    "callback": (("callbacks", "ResultsTable"), {}, "callbacks.ResultsTable has no best, baselines"),
    "callbacks": (("callbacks",), 5, "callbacks is 5, expected a dict"),
    "data": (("TinyData", "accumulation"), 0, "TinyData.accumulation is 0, expected a positive count"),
    "true as a count": (("TinyData", "accumulation"), True, "TinyData.accumulation is True, expected a positive count"),
    "step": (("optimizer_states", 0, "state", 0, "step"), -1, "state.0.step is -1, expected a step count"),
    "true as a step": (("optimizer_states", 0, "state", 0, "step"), True, "state.0.step is True, expected a step"),
    "step that is NaN": (("optimizer_states", 0, "state", 0, "step"), torch.tensor(math.nan), "expected a step count"),
    "position": (("TinyData", "batches"), 99, "99 batches into epoch 1, but an epoch has 5"),
    "time": (("saved_at",), "now", "saved_at is 'now', expected a finite number"),
    "version": (("pytorch-lightning_version",), "0", "is '0', expected a version of Lightning"),
    "epoch": (("epoch",), 1.5, "epoch is 1.5, expected a count"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_content_is_one_message_with_file_and_key(saved, tmp_path_factory, kind):
    path, value, message = WRONG[kind]
    with pytest.raises(ValueError, match=message) as raised:
        resume(tmp_path_factory, replaced(saved, path, value))
    assert str(raised.value).count("\n") < 3
    assert len(str(raised.value)) < 600
    if isinstance(raised.value, CorruptCheckpointError):
        assert "wrong.ckpt is a whole file with wrong content" in str(raised.value)


def test_an_older_checkpoint_is_used_instead(saved, tmp_path, messages):
    (tmp_path / "checkpoints").mkdir()
    torch.save(saved, tmp_path / "checkpoints/last-1.ckpt")
    torch.save({**saved, "saved_at": saved["saved_at"] + 1, "loops": None}, tmp_path / "checkpoints/last.ckpt")
    assert newest_verified(tmp_path) == tmp_path / "checkpoints/last-1.ckpt"
    assert any("skipping last.ckpt" in line and "loops is None" in line for line in messages)


def test_a_layer_may_save_a_state_that_is_no_tensor(saved):
    """torch saves what `get_extra_state` of a layer returns, whatever its type is."""
    state = {**saved["state_dict"], "linear._extra_state": {"calibrated": True}}
    require_structure({**saved, "state_dict": state}, "last.ckpt")
    with pytest.raises(ValueError, match=r"state_dict.*linear\.weight"):
        require_structure({**saved, "state_dict": {**state, "linear.weight": {"calibrated": True}}}, "last.ckpt")


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_wrong_value_is_refused_or_trains_a_step(saved, tmp_path_factory, data):
    path = data.draw(st.sampled_from(sorted(paths(saved), key=str)))
    value = data.draw(st.just(REMOVED) | PLAIN)
    try:
        resume(tmp_path_factory, replaced(saved, path, value))
    except REFUSALS as error:
        assert str(error).count("\n") < 3
