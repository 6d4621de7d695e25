"""Tests the contracts of the private names of Lightning's loggers and profilers."""

import inspect

import pytest
from lightning.pytorch.loggers import TensorBoardLogger, WandbLogger
from lightning.pytorch.profilers import PyTorchProfiler

from engine.lightning_internals import loggers as internals
from tests.engine.lightning_internals.tiny_training import INSTALLED


def test_the_null_experiment_ignores_calls():
    experiment = internals.NullExperiment()
    experiment.add_scalar("name", 1.0)
    experiment["key"] = 1
    assert internals.flatten_config({"a": {"b": 1}}, ".") == {"a.b": 1}, INSTALLED


def test_the_file_of_a_summary_writer_is_replaced(tmp_path):
    class File:
        def __init__(self, path):
            self.path, self.written = path, b""

        def write(self, data):
            self.written += data

        def flush(self):
            pass

        close = flush

    opened = []
    writer = TensorBoardLogger(tmp_path, name="", version="").experiment
    internals.replace_event_file(writer, lambda path: opened.append(File(path)) or opened[-1])
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert opened[0].path.startswith(str(tmp_path)), INSTALLED
    assert b"loss" in opened[0].written, INSTALLED


def test_the_arguments_of_wandb_can_be_changed(tmp_path):
    wandb = pytest.importorskip("wandb")
    arguments = internals.wandb_arguments(WandbLogger(save_dir=tmp_path, mode="disabled"))
    arguments["id"] = "changed"
    assert "anonymous" in arguments, f"{INSTALLED}, wandb {wandb.__version__}"


def test_the_private_methods_of_a_profiler_exist(tmp_path):
    assert list(inspect.signature(PyTorchProfiler._delete_profilers).parameters) == ["self"], INSTALLED
    profiler = PyTorchProfiler(tmp_path, "name")
    internals.finish_trace(profiler)
    assert "text of a step" in internals.describe_statistics(profiler, {"step": "text of a step"}), INSTALLED
