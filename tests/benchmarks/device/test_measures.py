"""Checks the tools of the parts: counted bytes, covered time, errors, turns."""

import pytest
import torch

from benchmarks.device.measures.kernel_activity import covered
from benchmarks.device.measures.peaks import peak
from benchmarks.device.measures.reference import Outcome, Variant, compared, relative_error
from benchmarks.device.measures.timing import take_turns
from benchmarks.device.measures.traffic import Copy, bytes_of
from benchmarks.device.part import Check, Setting


def test_an_operation_counts_what_it_reads_and_writes():
    x, y = torch.ones(100), torch.ones(100)
    assert bytes_of(lambda: x + y) == 3 * 400
    assert bytes_of(lambda: x.add_(y)) == 3 * 400
    assert bytes_of(lambda: x.view(10, 10).T[:5]) == 0
    assert bytes_of(lambda: torch.empty(1000)) == 0
    assert bytes_of(lambda: torch.zeros(1000)) == 4000
    # What is written alone is not read.
    assert bytes_of(lambda: x.copy_(y)) == bytes_of(lambda: torch.exp(x, out=y)) == 2 * 400
    assert bytes_of(lambda: x.double()) == 400 + 800
    # Of an expanded tensor what is there.
    assert bytes_of(lambda: x.view(1, 100).expand(50, 100) * 2) == 400 + 50 * 400


def test_bytes_of_the_backward_pass_are_counted():
    x = torch.ones(100, requires_grad=True)
    forward = bytes_of(lambda: x.exp())
    assert bytes_of(lambda: x.exp().sum().backward()) > 2 * forward


def test_a_copy_moves_the_requested_number_of_bytes():
    copy = Copy("cpu", moved=2 * 25, buffer=10)
    assert bytes_of(copy) == 2 * 25
    copy.target.zero_()
    copy()
    assert torch.equal(copy.target, copy.source)


def test_overlapping_spans_are_counted_once():
    assert covered([(0, 2), (1, 3), (5, 6), (5.5, 5.75)]) == 4
    assert covered([]) == 0


def test_errors_are_relative_and_of_all_tensors_together():
    exact = [torch.tensor([3.0]), torch.tensor([4.0])]
    assert relative_error([torch.tensor([3.0]), torch.tensor([4.5])], exact) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="shapes"):
        relative_error([torch.zeros(2)], [torch.zeros(3)])


def test_nan_and_infinity_fail_a_check():
    assert not Check("it", relative_error([torch.tensor([torch.nan])], [torch.ones(1)]), 1e9).passed
    assert not Check("it", relative_error([torch.tensor([torch.inf])], [torch.ones(1)]), 1e9).passed


def test_value_and_gradients_are_checked_apart():
    reference = Outcome(torch.ones(1), [torch.ones(2)])
    variant = Variant("it", "fp32", lambda: None, lambda: Outcome(torch.ones(1), [torch.zeros(2)]))
    (value, gradients), failures = compared([variant], reference)
    assert value.passed
    assert not gradients.passed
    assert gradients.error == 1
    assert not failures


def test_turns_go_back_and_forth():
    order = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    found = take_turns(works, "cpu", repeats=2, seconds=1e-9)
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 2, "b": 2}
    assert order[-8:] == ["a", "a", "b", "b", "b", "b", "a", "a"]


def test_a_given_peak_is_that_of_16_bits():
    setting = Setting("cpu", tiny=True, repeats=1, peak_tflops=100.0)
    assert [peak(setting, name) for name in ("bf16", "fp16", "tf32", "fp32")] == [1e14, 1e14, 5e13, None]
    assert peak(setting._replace(peak_tflops=None), "bf16") is None
