"""Compares the counter with cases that are counted by hand."""

import torch

from engine.lightning_internals.tensors import without_values
from engine.system.allocation_counter import AllocationCounter

KB = 1000  # bytes of 250 numbers in float32


def test_a_tensor_counts_until_its_last_reference_is_gone():
    with AllocationCounter() as counter:
        first = torch.zeros(250)
        second = first + 1
        assert counter.now == 2 * KB
        view = second[:10]
        del second
        assert counter.now == 2 * KB  # the view keeps the whole storage
        del view
        assert counter.now == KB
        first.add_(1)
    assert counter.now == KB


def test_the_counter_has_the_peak_of_each_interval():
    with AllocationCounter() as counter:
        kept = torch.zeros(250)
        for _ in range(3):
            torch.zeros(500)  # freed at once
        counter.mark()
        counter.mark()
        other = torch.zeros(500)
        del kept, other
        counter.mark()
    assert counter.peaks == [3 * KB, KB, 3 * KB]
    assert counter.now == 0


def test_results_in_tuples_and_lists_are_counted():
    with AllocationCounter() as counter:
        pair = torch.zeros(250).max(dim=0, keepdim=True)
        parts = list(torch.zeros(250).split(50))  # views
        assert counter.now == 4 + 8 + KB
        del pair
        assert counter.now == KB
    del parts


def test_a_backward_pass_keeps_its_gradients_alone():
    weight = torch.zeros(250, requires_grad=True)  # not counted, made outside
    with AllocationCounter() as counter:
        loss = (weight.exp() * 2).sum()
        assert counter.now == KB + 4  # exp keeps its result, the product by a number nothing
        loss.backward()
        assert counter.now == KB + KB + 4 or counter.now == KB + 4
        del loss
        assert weight.grad is not None
        assert counter.now == KB


def test_storages_that_change_their_size_are_counted():
    with AllocationCounter(resizable=True) as counter:
        tensor = torch.zeros(250)
        tensor.untyped_storage().resize_(0)
        assert counter.now == 0
        tensor.untyped_storage().resize_(4 * KB)
        counter.mark()
        torch.zeros(1)
        counter.mark()
    assert counter.now == 4 * KB
    assert counter.peaks[1] == 4 * KB + 4


def test_tensors_without_values_count_and_take_no_memory():
    with without_values(), AllocationCounter() as counter:
        huge = torch.zeros(2**40)
        assert counter.now == 4 * 2**40
        del huge
        assert counter.now == 0
