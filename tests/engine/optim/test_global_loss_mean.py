"""Tests that the gradient is that of the mean loss over the global batch, also with a loss scaler."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.distributed.step_counters import StepCounters
from engine.optim import global_loss_mean
from engine.optim.global_loss_mean import GlobalLossMean, LossSum


def gradients(splits, reference, counters=None):
    """Return the gradient of the mean of w * x over all x, computed in the given micro-batches."""
    weight = torch.nn.Parameter(torch.tensor(2.0))
    mean = GlobalLossMean(reference)
    for values in splits:
        loss = (weight * torch.tensor(values)).square().sum()
        mean.add(LossSum(loss, len(values))).backward()
    return mean.normalize_gradients([weight], counters), weight.grad


def test_micro_batches_of_different_sizes_weigh_by_their_terms():
    whole = gradients([[1.0, 2.0, 3.0, 4.0, 5.0]], reference=4)
    parts = gradients([[1.0, 2.0, 3.0, 4.0], [5.0]], reference=4)
    assert torch.allclose(whole[0], parts[0])
    assert torch.allclose(whole[1], parts[1])
    assert torch.allclose(whole[1], torch.tensor(2 * 2.0 * 55 / 5))


def test_the_reference_changes_no_digit():
    values = [[0.1, 0.7, 0.3], [0.9]]
    (loss, gradient), *others = [gradients(values, reference) for reference in (1, 3, 1000)]
    for other_loss, other_gradient in others:
        assert torch.equal(loss, other_loss)
        assert torch.equal(gradient, other_gradient)


@pytest.mark.parametrize("splits", [[[0.1, 0.7, 0.3], [0.9], []], [[1.0, 2.0]], [[3e38], [3e38]], [[math.nan]]])
def test_numbers_of_the_host_have_the_bits_of_tensors(monkeypatch, splits):
    """A GPU's sums stay in tensors; the test uses tensors of the CPU."""
    counters = [StepCounters(), StepCounters()]
    results = []
    for counter, is_host in zip(counters, (True, False), strict=True):
        monkeypatch.setattr(global_loss_mean, "is_host", lambda device, is_host=is_host: is_host)
        counter.register("seen")
        counter.add("seen", 0.1)
        results.append(gradients(splits, 3, counter))
    for number, tensor in zip(*results, strict=True):
        torch.testing.assert_close(number, tensor, rtol=0, atol=0, equal_nan=True)
    assert counters[0].total("seen") == counters[1].total("seen") == 0.1


def test_a_step_without_terms_has_a_zero_gradient():
    weight = torch.nn.Parameter(torch.ones(3))
    mean = GlobalLossMean(8)
    mean.add(LossSum((weight * 0).sum(), 0)).backward()
    assert mean.normalize_gradients([weight]) == 0
    assert torch.equal(weight.grad, torch.zeros(3))


def test_steps_do_not_mix():
    mean, weight = GlobalLossMean(1), torch.nn.Parameter(torch.tensor(1.0))
    for _ in range(2):
        weight.grad = None
        mean.add(LossSum(weight * 6, 3)).backward()
        assert mean.normalize_gradients([weight]) == 2
        assert weight.grad == 2


MICRO_BATCHES = [[0.5, 1.0, 2.0], [4.0]]
MEAN_GRADIENT = 2 * 3.0 * (0.25 + 1 + 4 + 16) / 4


def unscaled(micro_batches):
    """Train as Lightning does in 16-mixed: scaled backward passes, normalize_gradients, unscale_, clipping, step."""
    weight = torch.nn.Parameter(torch.tensor(3.0))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler, mean = torch.amp.GradScaler("cpu", init_scale=2.0**16), GlobalLossMean(2)
    for values in micro_batches:
        loss = (weight * torch.tensor(values)).square().sum()
        scaler.scale(mean.add(LossSum(loss, len(values)))).backward()
    mean.normalize_gradients([weight])
    scaler.unscale_(optimizer)
    return weight, optimizer, scaler


def test_the_unscaled_gradient_is_that_of_the_mean():
    weight, optimizer, scaler = unscaled(MICRO_BATCHES)
    assert weight.grad == MEAN_GRADIENT
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(weight.detach(), torch.tensor(3.0 - 0.1 * MEAN_GRADIENT))
    assert scaler.get_scale() == 2.0**16


@pytest.mark.parametrize("broken", [torch.inf, torch.nan])
def test_a_scaler_skips_the_step_of_a_gradient_that_overflowed(broken):
    weight, optimizer, scaler = unscaled([*MICRO_BATCHES, [broken]])
    assert not weight.grad.isfinite()
    scaler.step(optimizer)
    scaler.update()
    assert weight == 3.0
    assert scaler.get_scale() == 2.0**15


def test_clipping_after_unscaling_sees_the_means_norm():
    weight, optimizer, scaler = unscaled(MICRO_BATCHES)
    assert torch.nn.utils.clip_grad_norm_([weight], 1.0) == MEAN_GRADIENT
    scaler.step(optimizer)
    torch.testing.assert_close(weight.detach(), torch.tensor(3.0 - 0.1))


values = st.floats(-4, 4).filter(lambda value: value == 0 or abs(value) > 1e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(values, max_size=6), min_size=1, max_size=5), st.integers(1, 10**6))
def test_whatever_count_is_expected_the_mean_is_exact(splits, expected):
    """Also with micro-batches that have no term, and with a reference that is far off."""
    together = [value for part in splits for value in part]
    weight = torch.nn.Parameter(torch.tensor(2.0))
    loss, gradient = gradients([part or [0.0] for part in splits], 1) if all(splits) else (None, None)
    mean = GlobalLossMean(expected)
    for part in splits:
        mean.add(LossSum((weight * torch.tensor(part)).square().sum(), len(part))).backward()
    actual = mean.normalize_gradients([weight])
    count = max(len(together), 1)
    exact = sum(value * value for value in together) / count
    torch.testing.assert_close(actual, torch.tensor(4.0 * exact), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(weight.grad, torch.tensor(4.0 * exact), rtol=1e-5, atol=1e-6)
    if loss is not None:
        assert torch.equal(actual, loss), "a power of two changes no digit"
        assert torch.equal(weight.grad, gradient), "a power of two changes no digit"


@pytest.mark.parametrize("off", [0.01, 1, 100])
@pytest.mark.parametrize("empty", [False, True], ids=["", "with a micro-batch without terms"])
def test_half_precision_neither_overflows_nor_loses_the_gradient(off, empty):
    """The expected count is 100 times too small or too large: the scaler halves its scale for the one, no more often
    than the count is off by powers of two, and the other loses nothing that half precision can hold."""
    torch.manual_seed(0)
    inputs, targets, width = torch.randn(4096, 8), torch.randint(16, (4096,)), 16
    layer = torch.nn.Linear(8, width)
    torch.nn.functional.cross_entropy(layer(inputs), targets).backward()
    expected, layer.weight.grad, layer.bias.grad = layer.weight.grad, None, None
    mean, scaler = GlobalLossMean(int(2048 * off)), torch.amp.GradScaler("cpu", init_scale=2.0**16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    for skipped in range(12):  # noqa: B007  it is read after the loop
        optimizer.zero_grad()
        for part in (slice(0, 2048), slice(2048, 4096), *([slice(0, 0)] if empty else [])):
            with torch.autocast("cpu", torch.float16):
                logits = layer(inputs[part])
            loss = torch.nn.functional.cross_entropy(logits.float(), targets[part], reduction="sum")
            scaler.scale(mean.add(LossSum(loss, len(targets[part])))).backward()
        mean.normalize_gradients(layer.parameters())
        scaler.unscale_(optimizer)
        if layer.weight.grad.isfinite().all():
            break
        scaler.step(optimizer)
        scaler.update()
    assert skipped <= max(0, math.ceil(-math.log2(off)))
    torch.testing.assert_close(layer.weight.grad, expected, rtol=2e-2, atol=2e-4)


def test_gradients_that_a_strategy_has_offloaded_are_multiplied_where_they_are(monkeypatch):
    """Tensors on the meta device stand for those on another device than the loss."""
    factors = []
    monkeypatch.setattr(global_loss_mean, "multiply_all", lambda gradients, factor: factors.append(factor.device.type))
    weight = torch.nn.Parameter(torch.ones(2, device="meta"))
    weight.grad = torch.ones(2, device="meta")
    mean = GlobalLossMean(2)
    mean.add(LossSum(torch.tensor(4.5), 3))  # with 2 terms the factor would be 1, and nothing multiplied
    assert mean.normalize_gradients([weight]) == 1.5
    assert factors == ["meta"]
