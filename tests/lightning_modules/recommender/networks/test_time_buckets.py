"""Tests logarithmic buckets against plain float64 arithmetic at every border, in torch and in ONNX."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.export.onnx import export_onnx, run_onnx
from lightning_modules.recommender.networks.time_buckets import LAST_BUCKET, time_buckets


def plain(seconds):
    return np.clip(np.floor(np.log(np.maximum(seconds, 1)) / 0.301), 0, 64).astype(np.int64)


def borders():
    """The first second of each bucket from 1 to 64, in exact arithmetic."""
    with localcontext() as context:
        context.prec = 50
        return [math.ceil((Decimal("0.301") * bucket).exp()) for bucket in range(1, LAST_BUCKET + 1)]


def around_borders():
    """The second before each border, the border and the one after it; short ones and the ends of the range, too."""
    near = [border + step for border in borders() for step in (-1, 0, 1)]
    return np.unique(np.array([*near, *range(-3, 200), -(2**62), 2**31, 2**53 + 1, 2**62]))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.integers(-(2**62), 2**62), st.integers(-5, 10**9)), min_size=1, max_size=50))
def test_buckets_are_those_of_numpy(seconds):
    assert time_buckets(torch.tensor(seconds)).tolist() == plain(np.array(seconds)).tolist()


def test_buckets_begin_as_in_exact_arithmetic():
    begins = torch.tensor(borders())
    previous, first = time_buckets(begins - 1), time_buckets(begins)
    expected = [sum(border <= second for border in borders()) for second in borders()]
    assert first.tolist() == expected
    assert expected[-1] == LAST_BUCKET
    assert (previous < first).all()  # several borders of the shortest buckets lie at the same second
    assert begins[-1].item() > 7 * 365 * 86_400


def test_rows_are_those_of_the_whole():
    seconds = torch.from_numpy(around_borders()).repeat(3, 2, 1)
    buckets = time_buckets(seconds)
    assert buckets.shape == seconds.shape
    assert buckets[2, 1].tolist() == plain(around_borders()).tolist()
    assert torch.equal(buckets, time_buckets(seconds.flatten()).view_as(buckets))


def test_any_shape_and_never_below_0_or_above_the_last():
    buckets = time_buckets(torch.tensor([[[-(2**62), -1, 0], [1, 2, 2**62]]]))
    assert buckets.tolist() == [[[0, 0, 0], [0, 2, LAST_BUCKET]]]
    assert buckets.dtype == torch.int64


class Buckets(torch.nn.Module):
    """The buckets of intervals, of which a graph shows every number."""

    def forward(self, times):
        return (time_buckets(times.unsqueeze(2) - times.unsqueeze(1)),)


@pytest.mark.slow
def test_the_graphs_buckets_are_exact_for_decades(tmp_path):
    """float32 counts seconds exactly for half a year only, and its logarithms miss borders of minutes."""
    seconds = torch.from_numpy(around_borders()).clamp(0, 60 * 365 * 86_400).unique()
    rows = torch.stack((torch.zeros_like(seconds), seconds), 1) + 1_000_000_000
    axes = {"times": {0: torch.export.Dim("rows")}}
    export_onnx(tmp_path / "buckets.onnx", Buckets(), {"times": rows}, ["buckets"], axes)
    generator = torch.Generator().manual_seed(0)
    years = torch.randint(0, 2**31, (5000, 2), generator=generator).sort(1).values
    for times in (rows, years):
        ((found,),) = run_onnx(tmp_path / "buckets.onnx", {"times": times.numpy()})
        np.testing.assert_array_equal(found[:, 1, 0], plain((times[:, 1] - times[:, 0]).numpy()))
    assert len(np.unique(plain(seconds.numpy()))) >= 60
