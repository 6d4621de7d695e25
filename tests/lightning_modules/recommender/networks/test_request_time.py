"""Tests that a position reads the time of the event that it predicts, and nothing else of the future."""

import numpy as np
import pytest
import torch

from lightning_modules.recommender.networks.attention.time_interval import time_intervals
from lightning_modules.recommender.networks.inputs.request_time import request_times
from tests.support.recommender.encoders import LONGEST, V, make_encoder, make_history

YEAR = 365 * 86_400
KINDS = {
    "linear": {"attention": "time_interval"},
    "log": {"attention": "time_interval", "time_buckets": "log"},
    "hstu": {"attention": "hstu", "feed_forward": "none"},
    "fuxi": {"attention": "fuxi", "feed_forward": "swiglu"},
}


def reader(kind="log", **changes):
    return make_encoder(**KINDS[kind], request_time=True, **changes).eval()


def test_the_time_of_the_next_event_equals_that_by_hand():
    history = make_history(lengths=(4, 1, 0), padded_to=5)
    times = torch.tensor([[5, 9, 9, 20, 20], [7, 7, 7, 7, 7], [0, 0, 0, 0, 0]])
    found = request_times(history._replace(times=times, request_time=torch.tensor([31, 8, 0])))
    assert found.tolist() == [[9, 9, 20, 31, 31], [8] * 5, [0] * 5]


def test_a_history_without_a_request_time_is_refused():
    with pytest.raises(ValueError, match="found a history without `History.request_time`"):
        reader()(make_history()._replace(request_time=None))


@pytest.mark.parametrize("residual", ["plain", "mhc"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_position_knows_the_time_of_the_next_event_and_no_later_one(kind, residual):
    encoder, history = reader(kind, residual=residual), make_history()
    row, position, length = 1, 3, 7
    before = encoder(history)[row]
    later = history.times.clone()
    later[row, position + 2 :] += 5
    items = history.items.clone()
    items[row, position + 1 :] = items[row, position + 1 :] % V + 1
    after = encoder(history._replace(times=later, items=items, request_time=history.request_time + 9))[row]
    torch.testing.assert_close(after[: position + 1], before[: position + 1])
    assert (after[position + 1 : length] - before[position + 1 : length]).abs().amax(1).min() > 1e-4
    moved = history.times.clone()
    moved[row, position + 1 :] += 4
    assert (encoder(history._replace(times=moved))[row, position] - before[position]).abs().max() > 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_that_of_the_history_cut_there(kind):
    """The time of the request is the next event's; positions differ, because they count from the end."""
    encoder, history = reader(kind), make_history(lengths=(7,))
    tables = encoder.time_tables
    for table in (encoder.positions,) if tables is None else (tables.position_keys, tables.position_values):
        torch.nn.init.zeros_(table.weight)
    cut = history._replace(
        items=history.items[:, :4],
        times=history.times[:, :4],
        lengths=torch.tensor([4]),
        request_time=history.times[:, 4],
    )
    torch.testing.assert_close(encoder(cut), encoder(history)[:, :4])


@pytest.mark.parametrize("kind", KINDS)
def test_a_blind_clock_does_not_read_the_request_time(kind):
    encoder = make_encoder(**KINDS[kind]).eval()
    history = make_history()
    assert torch.equal(encoder(history), encoder(history._replace(request_time=None)))
    assert torch.equal(encoder(history), encoder(history._replace(request_time=history.request_time + YEAR)))


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_no_real_position(kind):
    encoder, history = reader(kind), make_history()
    real = torch.arange(7) < history.lengths.unsqueeze(1)
    wider = history._replace(
        items=torch.nn.functional.pad(history.items, (0, 3), value=V),
        times=torch.nn.functional.pad(history.times, (0, 3), value=10**12),
    )
    torch.testing.assert_close(encoder(wider)[:, :7][real], encoder(history)[real])


def test_linear_intervals_are_counted_from_the_next_event():
    times = torch.tensor([[0, 9, 9 + YEAR, 2 * YEAR]])
    following = torch.tensor([[9, 9 + YEAR, 2 * YEAR, 2 * YEAR + 40]])
    intervals = time_intervals(times, torch.tensor([10]), 10**9, following)[0].numpy()
    units, queries = np.floor(times.numpy() / 10 + 0.5), np.floor(following.numpy() / 10 + 0.5)
    assert intervals.tolist() == np.abs(queries[0][:, None] - units[0]).tolist()


def test_the_longest_history_has_its_request():
    history = make_history(lengths=(LONGEST,), padded_to=LONGEST)
    states = [reader()(history._replace(request_time=history.request_time + later))[0, -1] for later in (0, YEAR)]
    assert (states[0] - states[1]).abs().max() > 1e-4
