"""Equal tensors have equal hashes; a changed bit, position or shape changes the hash."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.determinism.tensor_hash import _ROW, hash_tensor

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
]


def tensor_of(dtype, numel, seed=0):
    octets = torch.randint(0, 256, (numel * dtype.itemsize,), generator=torch.Generator().manual_seed(seed))
    octets = octets.to(torch.uint8)
    return (octets % 2).bool() if dtype is torch.bool else octets.view(dtype)


def reference_hash(tensor):
    """The hash computed with Python integers."""
    octets = tensor.contiguous().reshape(-1).view(torch.uint8).tolist()
    octets += [0] * (-len(octets) % 4)
    words = [int.from_bytes(bytes(octets[i : i + 4]), "little", signed=True) for i in range(0, len(octets), 4)]
    weights = [mix(i) | 1 for i in range(_ROW)]
    hashes = []
    for start in range(0, max(len(words), 1), _ROW):
        row = words[start : start + _ROW]
        hashes.append(sum(word * weight for word, weight in zip(row, weights, strict=False)) % 2**64)
    if len(hashes) > 1:
        words = [part for number in hashes for part in (number % 2**32, number >> 32)]
        signed = [word - 2**32 if word >= 2**31 else word for word in words]
        hashes = [sum(word * weight for word, weight in zip(signed, weights, strict=False)) % 2**64]
    sizes = [*tensor.shape, tensor.element_size()]
    shape = mix(sum(size * mix(dim + 1) for dim, size in enumerate(sizes)) % 2**64)
    total = (hashes[0] + shape) % 2**64
    return total - 2**64 if total >= 2**63 else total


def mix(number):
    mixed = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("numel", [0, 1, 3, 1000, 3 * _ROW + 5])
def test_the_hash_equals_the_reference(dtype, numel):
    tensor = tensor_of(dtype, numel)
    hashed = hash_tensor(tensor)
    assert hashed.dtype == torch.int64
    assert hashed.shape == ()
    assert int(hashed) == reference_hash(tensor) == int(hash_tensor(tensor.clone()))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 2 * _ROW + 3), st.sampled_from([torch.float16, torch.bfloat16, torch.float32]), st.data())
def test_every_bit_changes_the_hash(numel, dtype, data):
    tensor = tensor_of(dtype, numel, seed=numel)
    before = int(hash_tensor(tensor))
    bits = data.draw(st.sets(st.integers(0, numel * dtype.itemsize * 8 - 1), min_size=1, max_size=4))
    octets = tensor.view(torch.uint8)
    for bit in bits:
        octets[bit // 8] ^= 1 << bit % 8
    assert int(hash_tensor(tensor)) != before, f"bits {bits} of {numel} x {dtype}"


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 2 * _ROW + 3), st.data())
def test_positions_change_the_hash(numel, data):
    tensor = torch.arange(numel, dtype=torch.float32)
    before = int(hash_tensor(tensor))
    first, second = data.draw(st.lists(st.integers(0, numel - 1), min_size=2, max_size=2, unique=True))
    tensor[[first, second]] = tensor[[second, first]]
    assert int(hash_tensor(tensor)) != before


def test_changes_that_cancel_in_a_plain_sum_change_the_hash():
    zeros = torch.zeros(4 * _ROW)
    hashes = {int(hash_tensor(zeros)), int(hash_tensor(-zeros)), int(hash_tensor(zeros[:-1]))}
    hashes |= {int(hash_tensor(other)) for other in (zeros.view(4, -1), zeros.view(-1, 4), zeros.half())}
    step = torch.zeros(4 * _ROW, dtype=torch.int32)
    for change in ([1, -1], [1, -2, 1], [1, -3, 3, -1], [0, 1, -2, 1]):
        step.zero_()[: len(change)] = torch.tensor(change, dtype=torch.int32)
        hashes.add(int(hash_tensor(step)))
    assert len(hashes) == 10


def test_views_hash_like_their_copies():
    base = torch.randn(64, 96)
    assert hash_tensor(base.t()) == hash_tensor(base.t().contiguous()) != hash_tensor(base)
    halves = base.half().flatten()
    assert hash_tensor(halves[1:]) == hash_tensor(halves[1:].clone()), "an unaligned storage offset"
    assert not hash_tensor(torch.nn.Parameter(base)).requires_grad


def test_random_tensors_do_not_collide():
    generator = torch.Generator().manual_seed(0)
    hashes = {int(hash_tensor(torch.randn(8, generator=generator))) for _ in range(20_000)}
    assert len(hashes) == 20_000
