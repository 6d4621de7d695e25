"""Tests tables sharded by rows over three gloo ranks: owners, look-ups, and training by rows."""

import math

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from engine.distributed.collectives import all_gather_matrices, all_reduce_max, all_reduce_min, gather_shards
from engine.distributed.row_shards import is_sharded, look_up, new_rows, own_rows, shard_rows
from engine.optim.grad_norm import clip, gradient_norm
from engine.optim.optimizers import build_optimizer
from engine.optim.row_table import RowTable, is_trained

RANKS, V, C, STEPS = 3, 11, 5, 6
SHARES = (4, 4, 3)
UPDATES = {"rowwise_adagrad": {"row_sum": 1}, "lazy_adamw": {"exp_avg": C, "exp_avg_sq": C}}


def test_a_whole_table_is_looked_up_without_a_process_group():
    table = torch.randn(V, C)
    assert not is_sharded(table)
    assert own_rows(table).first == 0
    assert own_rows(table).rows.data_ptr() == table.data_ptr()
    assert look_up(table, torch.tensor([3, 0])).equal(table[[3, 0]])
    assert new_rows(table, [V]).equal(torch.zeros(V))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(V, C)
        with torch.no_grad():
            self.items.weight.copy_(torch.linspace(-1, 1, V * C).view(V, C))


def reads(rank, step):
    """Rows that a rank reads in a step; rank 2 reads none in the second step."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randperm(V, generator=generator)[: 0 if (rank, step) == (2, 1) else 2 + rank]


def train(network, update, mesh=None):
    """Train the table of a network, in shards if there is a mesh; return it, its optimizer and the gradient norms."""
    table = RowTable(network.items.weight, "items.weight", update, learning_rate=0.1)
    if mesh is not None:
        table.shard(network, mesh)
    optimizer = build_optimizer("adamw", [table.optimizer_group(0.1)], 0.01, (0.9, 0.98), tables=[table])
    rank, norms = torch.distributed.get_rank(), []
    for step in range(STEPS):
        rows = reads(rank, step)
        table.forget()
        (table.read(rows) * (rows[:, None] + step + 1.0)).square().sum().backward()
        table.collect_gradients()
        norms.append(gradient_norm([table.touched]))
        clip([table.touched], 0.7, norms[-1])
        optimizer.step()
    return table, optimizer, torch.stack(norms)


def in_shards(rank, rendezvous):
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    table = torch.arange(V * C, dtype=torch.float32).view(V, C)
    table[5] = math.nan
    divided = shard_rows(table, mesh)
    first, rows = own_rows(divided)
    assert is_sharded(divided)
    assert first == sum(SHARES[:rank])
    assert len(rows) == SHARES[rank]
    assert rows.untyped_storage().nbytes() == SHARES[rank] * C * 4, "the rest of the table is free"
    for indices in ([[0, 5, 10], [3], []], [[], [], []], [[10, 4], [4, 5], [4]]):
        wanted = torch.tensor(indices[rank], dtype=torch.int64)
        torch.testing.assert_close(look_up(divided, wanted), table[wanted], rtol=0, atol=0, equal_nan=True)
    few = shard_rows(torch.ones(2, C), mesh)  # fewer rows than ranks
    assert len(own_rows(few).rows) == (rank < 2)
    assert look_up(few, torch.tensor([1])).equal(torch.ones(1, C))
    sizes = [tuple(part.shape) for part in all_gather_matrices(torch.ones(rank + 1, 2 - rank))]
    assert sizes == [(1, 2), (2, 1), (3, 0)]
    cpu = torch.device("cpu")
    assert (all_reduce_max(rank, cpu), all_reduce_min(rank + 0.5, cpu)) == (RANKS - 1, 0.5)
    assert all_reduce_max(math.inf if rank == 1 else 0.0, cpu) == math.inf
    for update, state in UPDATES.items():
        network = Network()
        replica, optimizer, norms = train(Network(), update)
        shards, of_shards, own_norms = train(network, update, mesh)
        assert network.items.weight is shards.weight
        assert is_trained(shards.weight)
        assert own_norms.equal(norms), "the norm has each row once"
        assert shards.weight.to_local().numel() == SHARES[rank] * C
        assert gather_shards(shards.weight.detach()).equal(replica.weight)
        kept, expected = of_shards.state[shards.touched], optimizer.state[replica.touched]
        assert kept["step"] == expected["step"] == STEPS
        for key, numbers in state.items():
            assert kept[key].to_local().numel() == SHARES[rank] * numbers
            assert gather_shards(kept[key]).equal(expected[key]), key
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.distributed
def test_three_ranks_train_a_sharded_table_as_replicas_to_the_bit(tmp_path):
    torch.multiprocessing.spawn(in_shards, (str(tmp_path / "rendezvous"),), nprocs=RANKS)
