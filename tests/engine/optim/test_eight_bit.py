"""8-bit AdamW on shards computes what bitsandbytes computes on whole weights."""

from datetime import timedelta
from itertools import pairwise

import bitsandbytes
import pytest
import torch
from torch import nn

from engine.optim.eight_bit import BLOCK, BlockPart
from engine.optim.eight_bit_state import QUANTIZED, as_bitsandbytes, from_bitsandbytes
from engine.optim.optimizers import build_optimizer
from tests.tiers import slow

BETAS = (0.9, 0.98)
SHAPES = {"rows of a part of a block": (101, 41), "aligned": (64, 128), "few rows": (2, 4000), "small": (70, 3)}
"""Shapes of weights; blocks lie across ranks in the first and third, and a rank of three has no row of the third."""


def weights():
    generator = torch.Generator().manual_seed(7)
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in SHAPES.items()}


def gradients(step):
    generator = torch.Generator().manual_seed(100 + step)
    return {name: torch.randn(shape, generator=generator) * 10.0 ** (step % 3) for name, shape in SHAPES.items()}


def groups(parameters):
    one, *others = parameters.values()
    return [{"params": [one], "weight_decay": 0.1, "lr": 3e-3}, {"params": others, "weight_decay": 0.0}]


def train(parameters, optimizer, steps, shard=lambda tensor: tensor):
    for step in steps:
        for name, gradient in gradients(step).items():
            parameters[name].grad = shard(gradient)
        optimizer.step()


def train_sharded(rank, folder, ranks):
    """Continue the state of bitsandbytes' first three steps in shards, and save the whole in its form."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous{ranks}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
    )
    mesh = init_device_mesh("cpu", (ranks,))

    def shard(tensor):
        return distribute_tensor(tensor, mesh, [Shard(0)])

    saved = torch.load(f"{folder}/begun.pt", weights_only=True)
    parameters = {name: nn.Parameter(shard(value)) for name, value in saved["weights"].items()}
    optimizer = build_optimizer("adamw_8bit", groups(parameters), 1e-3, BETAS)
    numbers = dict(enumerate(parameters.values()))
    for number, state in from_bitsandbytes(saved["state"])["state"].items():
        sharded = {key: shard(value) if key in ("state1", "state2") else value for key, value in state.items()}
        optimizer.state[numbers[number]] = sharded
    train(parameters, optimizer, range(3, 8), shard)
    whole = {
        number: {key: value.full_tensor() if key in ("state1", "state2") else value for key, value in state.items()}
        for number, state in enumerate(optimizer.state.values())
    }
    result = {name: parameter.full_tensor() for name, parameter in parameters.items()}
    if rank == 0:
        state = as_bitsandbytes({"state": whole})
        torch.save({"weights": result, "state": state}, f"{folder}/ended{ranks}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, slow(2), slow(3)])
def test_shards_equal_bitsandbytes_to_the_bit(tmp_path, ranks):
    parameters = weights()
    optimizer = bitsandbytes.optim.AdamW8bit(groups(parameters), lr=1e-3, betas=BETAS)
    train(parameters, optimizer, range(3))
    begun = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    torch.save({"weights": begun, "state": optimizer.state_dict()}, tmp_path / "begun.pt")
    if ranks == 1:
        train_sharded(0, str(tmp_path), ranks)
    else:
        torch.multiprocessing.spawn(train_sharded, (str(tmp_path), ranks), nprocs=ranks)
    train(parameters, optimizer, range(3, 8))

    ended = torch.load(tmp_path / f"ended{ranks}.pt", weights_only=True)
    expected = optimizer.state_dict()["state"]
    for number, (name, parameter) in enumerate(parameters.items()):
        assert torch.equal(ended["weights"][name], parameter), name
        ours, theirs = ended["state"]["state"][number], expected[number]
        assert ours["step"] == theirs["step"] == 8
        assert ours[QUANTIZED].keys() == theirs[QUANTIZED].keys(), name
        for key, value in theirs[QUANTIZED].items():
            assert torch.equal(ours[QUANTIZED][key], value), (name, key)


def test_codes_of_parts_are_those_of_the_whole():
    """Blocks that are divided between parts get the scale of the whole block, which a part may lack the maximum of."""
    elements = torch.randn(1000, generator=torch.Generator().manual_seed(3)) ** 3
    values = bitsandbytes.functional.create_dynamic_map()
    codes, state = bitsandbytes.functional.quantize_blockwise(elements, code=values, blocksize=BLOCK)
    numbers = bitsandbytes.functional.dequantize_blockwise(codes, absmax=state.absmax, code=values, blocksize=BLOCK)
    borders = [0, 100, 300, 512, 700, 740, 1000]
    for begin, end in pairwise(borders):
        first, last = begin // BLOCK, -(-end // BLOCK)
        part = BlockPart(first, last, begin - first * BLOCK, last * BLOCK - end)
        assert torch.equal(part.quantized(elements[begin:end], state.absmax, values), codes[begin:end])
        assert torch.equal(part.dequantized(codes[begin:end], state.absmax, values), numbers[begin:end])


def test_a_state_is_converted_to_the_form_of_bitsandbytes_and_back():
    parameters = weights()
    optimizer = bitsandbytes.optim.AdamW8bit(groups(parameters), lr=1e-3, betas=BETAS)
    train(parameters, optimizer, range(2))
    saved = optimizer.state_dict()
    again = as_bitsandbytes(from_bitsandbytes(saved))
    assert again["param_groups"] == saved["param_groups"]
    for number, state in saved["state"].items():
        assert again["state"][number]["step"] == state["step"]
        assert all(again["state"][number][QUANTIZED][key] is value for key, value in state[QUANTIZED].items())
    adamw = {"state": {0: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(2)}}, "param_groups": []}
    assert as_bitsandbytes(adamw) == adamw
    assert from_bitsandbytes(adamw) == adamw
