"""Every part runs on the CPU with tiny sizes, and measures only what agrees with float64."""

import gc
import importlib
import math

import pytest
import torch

from benchmarks import gpu
from benchmarks.device import rates, recommender, time_attention, vision_transformer
from benchmarks.device.measures.reference import Outcome
from benchmarks.device.part import NEEDS_CUDA, ResultTable, Setting
from lightning_modules.recommender.networks.architecture import ArchitectureSettings

TINY = Setting("cpu", tiny=True, repeats=2, compiled=False, peak_tflops=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("part", [part for part in gpu.PARTS if part != "training"])
def test_a_part_checks_first_and_measures_then(part):
    found = list(importlib.import_module(f"benchmarks.device.{part}").measure(TINY))
    assert isinstance(found[0], list)
    assert found[0]
    assert all(check.passed for checks in found if isinstance(checks, list) for check in checks)
    sheets = [sheet for sheet in found if isinstance(sheet, ResultTable)]
    assert sheets
    assert all(not sheet.failures for sheet in sheets)
    for row in (row for sheet in sheets for row in sheet.rows):
        if row.cells[0] == NEEDS_CUDA:
            assert not any(isinstance(cell, (list, float)) for cell in row.cells)
            continue
        assert len(row.cells[0]) == TINY.repeats
        assert min(row.cells[0]) > 0
    if part != "ceilings":
        assert any(NEEDS_CUDA in row.cells for sheet in sheets for row in sheet.rows)


def test_the_share_of_the_peak_is_of_the_counted_operations():
    sheet = list(importlib.import_module("benchmarks.device.vision_transformer").measure(TINY))[1]
    bf16 = next(row for row in sheet.rows if row.name == "bf16")
    cells = dict(zip(sheet.headings, bf16.cells, strict=True))
    # Of 1 TFLOP/s at best.
    assert cells["MFU"] == pytest.approx(cells["TFLOP/s"])
    # 6 operations a weight and image token, and attention: most of the tiny network's are its blocks' 24,576 weights.
    images = cells["images/s"][0]
    assert cells["TFLOP/s"][0] * 1e12 / images == pytest.approx(6 * 24_576 * 16, rel=0.15)


def test_a_wrong_attention_is_not_measured(monkeypatch):
    monkeypatch.setattr(time_attention.TimeIntervalAttention, "attend", staticmethod(_without_mask))
    checks = next(time_attention.measure(TINY))
    passed = {check.name: check.passed for check in checks}
    assert passed["naive fp32"]
    assert not passed["ours fp32"]
    assert not passed["ours bf16"]


def _without_mask(query, key, value, dropout, relations):
    tables = relations.keys.sum() + relations.values.sum()
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value + 0 * tables


@pytest.mark.slow
def test_no_ratio_to_a_naive_form_that_could_not_run(monkeypatch):
    real = time_attention.NaiveTimeAttention.forward

    def broken(layer, x, relations):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("no memory")
        return real(layer, x, relations)

    monkeypatch.setattr(time_attention.NaiveTimeAttention, "forward", broken)
    sheets = [found for found in time_attention.measure(TINY) if isinstance(found, ResultTable)]
    bf16 = next(sheet for sheet in sheets if sheet.failures)
    (ours,) = bf16.rows
    assert list(bf16.failures) == ["naive bf16"]
    assert ours.name == "ours bf16"
    assert ours.cells[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("part", [time_attention, vision_transformer])
def test_a_timed_part_leaves_no_gradients(part, monkeypatch):
    """They would not count in the peak of memory above what was there before."""
    left = []

    def looking(work, device):
        work()
        left.append(_gradients())
        return NEEDS_CUDA

    gc.collect()
    before = _gradients()
    monkeypatch.setattr(rates, "memory_of", looking)
    monkeypatch.setattr(time_attention, "memory_of", looking)
    assert any(isinstance(sheet, ResultTable) for sheet in part.measure(TINY))
    assert left[-1] == before  # when each form was timed


def _gradients():
    leaves = [found for found in gc.get_objects() if issubclass(type(found), torch.Tensor) and found.is_leaf]
    return sum(leaf.grad is not None for leaf in leaves)


def test_a_form_that_cannot_run_is_named_and_the_others_are_measured(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(recommender, "linear_cross_entropy", broken)
    step = recommender._step

    def captured(*arguments, **options):
        return step(*arguments, **(options | {"for_graph": arguments[2] == "bf16"}))

    monkeypatch.setattr(recommender, "_step", captured)
    sheet = [found for found in recommender.measure(TINY) if isinstance(found, ResultTable)][0]
    assert list(sheet.failures) == ["eager bf16"]
    assert "no such kernel" in sheet.failures["eager bf16"]
    assert [row.name for row in sheet.rows if isinstance(row.cells[0], list)] == ["eager fp32"]


def test_the_loss_of_a_graph_is_the_projects_loss():
    """A graph cannot look for padding, so it has the inner function of the loss; the batch has no padding."""
    from copy import deepcopy

    from benchmarks.device.histories import TINY as SIZES
    from benchmarks.device.histories import full_batch

    torch.manual_seed(1)
    encoder = recommender.SequenceEncoder(
        SIZES.num_items, SIZES.length, ArchitectureSettings(hidden_size=SIZES.hidden_size)
    )
    batch = full_batch(SIZES, "cpu")
    assert (batch.targets > 0).all()
    assert (batch.history.times.diff(dim=1) > 0).all()
    outcomes: list[Outcome] = [
        recommender._step(deepcopy(encoder), batch, "fp32", "cpu", for_graph=for_graph).outcome()
        for for_graph in (False, True)
    ]
    assert float(outcomes[0].value) == float(outcomes[1].value)
