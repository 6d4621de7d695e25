"""Equal tensors have equal fingerprints; any changed bit, place or shape shows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fingerprint import _ROW, fingerprint

DTYPES = [
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
    torch.int64, torch.bool, torch.complex64,
]  # fmt: skip


def tensor_of(dtype, numel, seed=0):
    octets = torch.randint(0, 256, (numel * dtype.itemsize,), generator=torch.Generator().manual_seed(seed))
    octets = octets.to(torch.uint8)
    return (octets % 2).bool() if dtype is torch.bool else octets.view(dtype)


def by_hand(tensor):
    """The same sum with Python's own integers."""
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
    shape = mix(sum(size * mix(place + 1) for place, size in enumerate(sizes)) % 2**64)
    total = (hashes[0] + shape) % 2**64
    return total - 2**64 if total >= 2**63 else total


def mix(number):
    mixed = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    return mixed ^ (mixed >> 31)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("numel", [0, 1, 3, 1000, 3 * _ROW + 5])
def test_it_is_the_sum_that_it_says(dtype, numel):
    tensor = tensor_of(dtype, numel)
    figure = fingerprint(tensor)
    assert figure.dtype == torch.int64 and figure.shape == ()
    assert int(figure) == by_hand(tensor) == int(fingerprint(tensor.clone()))


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 2 * _ROW + 3), st.sampled_from([torch.float16, torch.bfloat16, torch.float32]), st.data())
def test_every_bit_counts(numel, dtype, data):
    tensor = tensor_of(dtype, numel, seed=numel)
    before = int(fingerprint(tensor))
    bits = data.draw(st.sets(st.integers(0, numel * dtype.itemsize * 8 - 1), min_size=1, max_size=4))
    octets = tensor.view(torch.uint8)
    for bit in bits:
        octets[bit // 8] ^= 1 << bit % 8
    assert int(fingerprint(tensor)) != before, f"bits {bits} of {numel} x {dtype}"


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 2 * _ROW + 3), st.data())
def test_places_count(numel, data):
    tensor = torch.arange(numel, dtype=torch.float32)
    before = int(fingerprint(tensor))
    one, other = data.draw(st.lists(st.integers(0, numel - 1), min_size=2, max_size=2, unique=True))
    tensor[[one, other]] = tensor[[other, one]]
    assert int(fingerprint(tensor)) != before


def test_changes_that_cancel_out_in_plain_sums():
    zeros = torch.zeros(4 * _ROW)
    figures = {int(fingerprint(zeros)), int(fingerprint(-zeros)), int(fingerprint(zeros[:-1]))}
    figures |= {int(fingerprint(other)) for other in (zeros.view(4, -1), zeros.view(-1, 4), zeros.half())}
    step = torch.zeros(4 * _ROW, dtype=torch.int32)
    for change in ([1, -1], [1, -2, 1], [1, -3, 3, -1], [0, 1, -2, 1]):
        step.zero_()[: len(change)] = torch.tensor(change, dtype=torch.int32)
        figures.add(int(fingerprint(step)))
    assert len(figures) == 10


def test_views_are_what_they_show():
    base = torch.randn(64, 96)
    assert fingerprint(base.t()) == fingerprint(base.t().contiguous()) != fingerprint(base)
    halves = base.half().flatten()
    assert fingerprint(halves[1:]) == fingerprint(halves[1:].clone()), "an odd place in memory"
    assert not fingerprint(torch.nn.Parameter(base)).requires_grad


def test_no_two_of_many_are_alike():
    generator = torch.Generator().manual_seed(0)
    figures = {int(fingerprint(torch.randn(8, generator=generator))) for _ in range(20_000)}
    assert len(figures) == 20_000
