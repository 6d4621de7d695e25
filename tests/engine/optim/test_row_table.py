"""Tests the rows that are read, their gradients, and the memory of a step."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from engine.distributed.step_counters import StepCounters
from engine.optim import row_table
from engine.optim.global_loss_mean import GlobalLossMean, LossSum
from engine.optim.optimizers import build_optimizer
from engine.optim.row_table import RowTable, is_trained

V, C = 20, 3


def make_table(size=V):
    torch.manual_seed(0)
    return RowTable(nn.Parameter(torch.randn(size, C)), "items", "rowwise_adagrad")


def test_gradients_of_micro_batches_add_up_and_rows_read_in_vain_are_not_touched():
    table = make_table()
    for indices, factors in (([2, 5, 9], [1.0, 2.0, 0.0]), ([5, 7], [3.0, 4.0])):
        rows = table.read(torch.tensor(indices))
        assert torch.equal(rows, table.weight[indices])
        (rows * torch.tensor(factors)[:, None]).sum().backward()
    table.read(torch.tensor([11]))  # and not used
    table.collect_gradients()
    assert table.indices.tolist() == [2, 5, 7]
    assert torch.equal(table.touched.grad, torch.tensor([1.0, 5.0, 4.0])[:, None].expand(3, C))


def test_the_mean_over_ranks_has_the_order_of_the_ranks(monkeypatch):
    """Each rank has the same to the bit, though 0.1 + 0.2 + 0.3 depends on the order."""

    def on(rank):
        others = {0: ([4, 6], [0.1, 1.0]), 1: ([6], [1.0]), 2: ([4], [0.2]), 3: ([1, 4], [5.0, 0.3])}
        parts = [(torch.tensor(rows), torch.tensor(values)[:, None].expand(-1, C)) for rows, values in others.values()]
        table = make_table()
        rows, factors = parts[rank]
        (table.read(rows) * factors).sum().backward()
        seen = []
        monkeypatch.setattr(row_table, "all_gather_rows", lambda *own: seen.append(own) or parts)
        table.collect_gradients()
        assert all(torch.equal(first, second) for first, second in zip(seen[0], parts[rank], strict=True))
        return table.indices.tolist(), table.touched.grad

    indices, gradient = on(0)
    assert indices == [1, 4, 6]
    tenths = torch.tensor(0.1) + torch.tensor(0.2) + torch.tensor(0.3)
    assert torch.equal(gradient, torch.stack([torch.tensor(5.0), tenths, torch.tensor(2.0)])[:, None].expand(3, C) / 4)
    assert all(torch.equal(on(rank)[1], gradient) for rank in (1, 2, 3))


def test_a_step_without_rows_is_followed_by_one_with_rows():
    table = make_table()
    table.collect_gradients()
    assert table.touched.grad.shape == (0, C)
    assert torch.nn.utils.get_total_norm([table.touched.grad]) == 0
    table.read(torch.tensor([3])).sum().backward()
    table.collect_gradients()
    assert table.indices.tolist() == [3]


def test_reads_of_a_trial_pass_are_forgotten():
    table = make_table()
    table.read(torch.tensor([3])).sum().backward()
    table.forget()
    table.read(torch.tensor([4])).sum().backward()
    table.collect_gradients()
    assert table.indices.tolist() == [4]


def test_a_row_that_is_not_a_number_is_touched():
    table = make_table()
    (table.read(torch.tensor([3, 4])) * torch.tensor([[torch.nan], [0.0]])).sum().backward()
    table.collect_gradients()
    assert table.indices.tolist() == [3]


def test_the_mean_is_that_of_a_dense_gradient():
    """The mean divides sums over unequal micro-batches by their number of terms."""
    generator = torch.Generator().manual_seed(1)
    micro_batches = [torch.randint(V, (size,), generator=generator) for size in (3, 8, 1)]
    dense = nn.Parameter(make_table().weight.detach().clone())
    (dense[torch.cat(micro_batches)].square().sum(1)).mean().backward()
    table, mean = make_table(), GlobalLossMean(expected_count=4)
    for items in micro_batches:
        unique, inverse = items.unique(return_inverse=True)
        rows = table.read(unique)
        mean.add(LossSum(rows[inverse].square().sum(), len(items))).backward()
    table.collect_gradients()
    mean.normalize_gradients([table.touched], StepCounters())
    assert table.indices.tolist() == dense.grad.any(1).nonzero().flatten().tolist()
    torch.testing.assert_close(table.touched.grad, dense.grad[table.indices])


def test_the_parameter_is_trained_though_it_needs_no_gradient():
    table, frozen = make_table(), nn.Parameter(torch.ones(1), requires_grad=False)
    assert is_trained(table.weight)
    assert is_trained(table.touched)
    assert not is_trained(frozen)


@pytest.mark.parametrize("update", ["rowwise_adagrad", "lazy_adamw"])
def test_a_step_allocates_nothing_of_the_tables_size(update):
    size = 200_000
    table = RowTable(nn.Parameter(torch.zeros(size, C)), "items", update)
    bias = nn.Parameter(torch.zeros(C))
    groups = [{"params": [bias]}, table.optimizer_group(0.1)]
    optimizer = build_optimizer("adamw", groups, 0.1, (0.9, 0.98), tables=[table])

    def step():
        optimizer.zero_grad()
        ((table.read(torch.tensor([1, 7, size - 1])) + bias) - 1).square().sum().backward()
        table.collect_gradients()
        optimizer.step()

    step()  # creates the state
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    allocated = [event.self_cpu_memory_usage for event in profiled.events()]
    assert 0 < max(allocated) < size / 100, "bytes of an operation"
    assert (table.weight.any(1).nonzero().flatten() == torch.tensor([1, 7, size - 1])).all()
