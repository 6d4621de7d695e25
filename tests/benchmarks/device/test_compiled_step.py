"""The compiled step is compared with float64, and then timed beside the plain step."""

from functools import partial

import pytest
import torch

from benchmarks.device import compiled_step
from benchmarks.device.compiled_step import COMPILED, PLAIN
from benchmarks.device.part import Setting

TINY = Setting("cpu", tiny=True, repeats=2)

# Dynamo reads every tensor's gradient and filters the warnings, but pytest resets the filters.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def only_traced(monkeypatch):
    """Let torch trace the graph without compiling it, which needs C++."""
    torch.compiler.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    yield
    torch.compiler.reset()


@pytest.mark.slow
def test_both_steps_are_checked_and_their_ratio_is_within_a_turn(monkeypatch):
    monkeypatch.setattr(compiled_step, "MODELS", {"SASRec": "standard"})
    checks, sheet = compiled_step.measure(TINY)
    names = [f"SASRec {name}{of}" for name in (PLAIN, COMPILED) for of in ("", ", gradients")]
    assert [check.name for check in checks] == names
    assert all(check.passed for check in checks)
    plain, compiled = (dict(zip(sheet.headings, row.cells, strict=True)) for row in sheet.rows)
    assert plain["times the plain step"] == [1.0, 1.0]
    assert not sheet.failures
    ratios = [before / after for before, after in zip(plain["ms per step"], compiled["ms per step"], strict=True)]
    assert compiled["times the plain step"] == pytest.approx(ratios)


def test_a_wrong_compiled_step_is_seen(monkeypatch):
    monkeypatch.setattr(compiled_step, "MODELS", {"SASRec": "standard"})
    sums = compiled_step.CompiledTrainingLoss._sums

    def doubled(loss, batch, keys):
        total, real = sums(loss, batch, keys)
        return 2 * total, real

    monkeypatch.setattr(compiled_step.CompiledTrainingLoss, "_sums", doubled)
    failed = [check.name for check in next(compiled_step.measure(TINY)) if not check.passed]
    assert failed == [f"SASRec {COMPILED}", f"SASRec {COMPILED}, gradients"]
