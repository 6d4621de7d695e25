"""Tests how the parts of a batch are joined into a batch of fixed shape."""

import pytest
import torch

from lightning_modules.recommender.compiled_step.fixed_shape import fixed_shape
from tests.support.recommender.bare_module import LONGEST, ROWS, make_batch

REAL = ROWS + 1  # with the filler


@pytest.mark.parametrize("shared", [False, True])
def test_parts_are_joined_in_their_order(shared):
    parts = make_batch(4, negatives=3, shared=shared)
    padded = fixed_shape(parts, 12, LONGEST)
    assert padded.history.items.shape == padded.history.times.shape == padded.targets.shape == (12, LONGEST)
    assert padded.negatives.shape == (12, 1 if shared else LONGEST, 3)
    start = 0
    for part in parts:
        rows, length = slice(start, start + len(part.users)), part.targets.shape[1]
        torch.testing.assert_close(padded.targets[rows, :length], part.targets, rtol=0, atol=0)
        torch.testing.assert_close(padded.history.items[rows, :length], part.history.items, rtol=0, atol=0)
        torch.testing.assert_close(padded.negatives[rows, : part.negatives.shape[1]], part.negatives, rtol=0, atol=0)
        assert not padded.targets[rows, length:].any()
        start += len(part.users)
    assert start == REAL


def test_further_rows_are_padding_rows():
    padded = fixed_shape(make_batch(4), 12, LONGEST)
    assert padded.users[REAL:].tolist() == [-1, -1]
    assert padded.history.lengths[REAL:].tolist() == [0, 0]
    assert padded.history.time_scale.min() == 1, "it is divided by"
    assert padded.history.request_time is not None
    assert padded.history.request_time.shape == (12,)
    assert padded.history.event_codes is None
    assert padded.history.event_numbers is None


def test_more_rows_than_expected_are_an_error():
    with pytest.raises(ValueError, match="a micro-batch of 10 rows, expected at most 8"):
        fixed_shape(make_batch(2), 8, LONGEST)
