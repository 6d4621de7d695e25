"""Tests profiles of steps: the row of each stack, and a profiled training."""

import sys
from functools import partial

import pytest
from rich.console import Console

from benchmarks.engine.step_profile import ROWS, StepProfile, measure, result, row_of, table
from benchmarks.engine.trainings import bare


def stack(*frames):
    """Frames of functions in files of these names, the innermost last."""
    found, source = [], "def outer(inner): return inner()"
    inner = partial(lambda: found.append(row_of(sys._getframe(1))))
    for frame in reversed(frames):
        path, _, name = frame.partition(":")
        names = {}
        exec(compile(source.replace("outer", name), path, "exec"), names)
        inner = partial(names[name], inner)
    inner()
    return found[0]


@pytest.mark.parametrize(
    ("frames", "row"),
    [
        (["/x/lightning/pytorch/loops/fit_loop.py:advance"], "loop"),
        (["/x/lightning/pytorch/trainer/call.py:_call", "/x/callbacks/guards/a.py:f"], "code of callbacks"),
        (["/x/engine/module.py:backward", "/x/lib/json/decoder.py:decode"], "engine's module"),
        (["/x/benchmarks/engine/trainings.py:bare", "/x/torch/optim/adam.py:step"], "optimizer and schedule"),
        (["/x/benchmarks/engine/trainings.py:bare"], "loop"),
        (["/x/engine/data/dataloader.py:load", "/x/benchmarks/engine/mlp.py:get"], "loader"),
        (["/x/benchmarks/engine/mlp.py:squared_errors", "/x/torch/nn/modules/linear.py:forward"], "forward pass"),
    ],
)
def test_a_stack_belongs_to_its_innermost_row(frames, row):
    assert stack(*frames) == row


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_a_bare_loop_has_no_engine(capsys):
    profiles = measure(steps=60, variants={"bare": partial(bare, batch_size=8)})
    found = profiles["bare"]
    assert found.microseconds["optimizer and schedule"] > 0
    assert found.microseconds["exact mean and counters"] == 0
    assert found.calls > found.torch_calls > 200, "24 layers, forward, backward and update"
    Console(width=140).print(table(profiles))
    assert f"{found.calls:,}" in capsys.readouterr().out


def test_the_sum_of_the_rows_is_printed(capsys):
    names = ["forward pass", "other"]
    rows = dict.fromkeys(ROWS, 0.0) | dict.fromkeys(names, 600.0)
    profiles = {"bare": StepProfile(rows, 2685, 641)}
    Console(width=140).print(table(profiles, "20 ms"))
    printed = capsys.readouterr().out
    assert "A step of 20 ms" in printed
    assert "1,200" in printed
    assert "2,685" in printed
    assert "641" in printed
    assert result(profiles, "20 ms")["size"] == "20 ms"
    assert result(profiles)["sides"] == [{"name": "bare", **profiles["bare"]._asdict()}]
