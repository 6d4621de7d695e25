"""Tests the model of a step over a network: its arithmetic, and that a fit recovers its parameters."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.network.step_model import BACKWARD_SHARE, Cluster, Observed, StepModel, fit, ring_bytes, step_seconds

SECONDS = st.floats(1e-4, 10)
BYTES = st.floats(1e3, 1e10)
RATE = st.floats(1e6, 1e12)
CLUSTER = st.builds(Cluster, st.integers(1, 8), st.integers(1, 8), RATE, RATE)


@settings(deadline=None)
@given(BYTES, st.integers(1, 1000))
def test_a_ring_sends_at_most_twice_the_gradients_and_one_process_nothing(size, processes):
    assert ring_bytes(size, 1) == 0
    assert ring_bytes(size, 2) == size
    assert ring_bytes(size, processes) <= ring_bytes(size, processes + 1) < 2 * size


def test_the_bytes_of_a_ring_equal_those_computed_by_hand():
    """Four processes with a quarter each: three quarters are sent to be summed, and three to be collected."""
    assert ring_bytes(400, 4) == 600


@settings(deadline=None)
@given(SECONDS, SECONDS, st.floats(0, 1))
def test_a_step_lies_between_its_bounds(compute, communication, share):
    none, some = step_seconds(compute, communication), step_seconds(compute, communication, share)
    assert none == compute + communication
    assert max(compute, communication) <= some * (1 + 1e-12)
    assert some <= none


@settings(deadline=None)
@given(CLUSTER, SECONDS, BYTES)
def test_a_cluster_is_at_most_as_fast_as_its_gpus_and_hiding_helps(cluster, compute, size):
    slow, fast = cluster.speedup(compute, size), cluster.speedup(compute, size, BACKWARD_SHARE)
    assert 0 < slow <= fast <= cluster.size * (1 + 1e-12)


@settings(deadline=None)
@given(CLUSTER, SECONDS, BYTES)
def test_a_faster_network_and_smaller_gradients_never_slow_down(cluster, compute, size):
    for better in (cluster._replace(inside=2 * cluster.inside), cluster._replace(between=2 * cluster.between)):
        assert better.communication(size) <= cluster.communication(size)
        assert better.speedup(compute, size, BACKWARD_SHARE) >= cluster.speedup(compute, size, BACKWARD_SHARE)
    assert cluster.communication(size / 2) == pytest.approx(cluster.communication(size) / 2)


def test_two_stages_take_the_time_computed_by_hand():
    """2 x 4 GPUs, 1 GB: 1.5 GB inside at 100 Gbit/s and 1 GB between at 10 Gbit/s."""
    cluster = Cluster(2, 4, inside=100e9, between=10e9)
    assert cluster.communication(1e9) == pytest.approx(0.12 + 0.8)
    assert cluster.speedup(0.92, 1e9) == pytest.approx(4)
    assert Cluster(1, 1, 1e9, 1e9).speedup(1, 1e12) == 1


@settings(deadline=None)
@given(st.floats(1e-3, 1), st.floats(1e5, 1e8), st.floats(0, 50))
def test_a_fit_finds_what_made_the_observations(compute, size, waits):
    truth = StepModel(compute, size, waits)
    points = [(bandwidth, delay) for bandwidth in (math.inf, 1e9, 1e8) for delay in (0.0, 0.01)]
    fitted = fit([Observed(truth.seconds(*point), *point) for point in points])
    for point in [*points, (3e8, 0.002), (5e7, 0.1)]:
        assert fitted.seconds(*point) == pytest.approx(truth.seconds(*point), rel=1e-6)
    assert fitted.compute == pytest.approx(compute, rel=1e-4, abs=1e-6)
    assert fitted.bytes == pytest.approx(size, rel=1e-4, abs=1)


@settings(deadline=None)
@given(st.floats(1e-2, 1), st.floats(1e6, 1e8), st.floats(0, 1))
def test_a_fit_finds_what_is_absorbed(compute, size, share):
    """Holds if the slow networks are slow enough to reveal it."""
    truth = StepModel(compute, size, absorbed=share * min(compute, 8 * size / 1e9))
    fitted = fit([Observed(truth.seconds(bandwidth), bandwidth) for bandwidth in (math.inf, 1e9, 3e8, 1e8)])
    assert fitted == pytest.approx(truth, rel=1e-4, abs=1e-6)
    for bandwidth in (1e10, 5e8, 5e7):
        assert fitted.seconds(bandwidth) == pytest.approx(truth.seconds(bandwidth), rel=1e-4)


def test_the_model_is_the_step_with_a_share_hidden():
    assert StepModel(0.03, 5e6, absorbed=0.02).seconds(1e9) == pytest.approx(step_seconds(0.03, 0.04, 2 / 3))
    assert StepModel(0.03, 5e6, absorbed=0.02).seconds(1e10) == 0.03


def test_a_fit_with_one_delay_has_no_waits():
    truth = StepModel(0.05, 4e6)
    fitted = fit([Observed(truth.seconds(bandwidth), bandwidth) for bandwidth in (1e9, 1e8)])
    assert fitted == pytest.approx(truth)
    assert fitted.waits == 0


def test_a_fit_has_no_waits_that_shorten_a_step():
    truth = StepModel(0.05, 4e6)
    points = [(bandwidth, delay) for bandwidth in (1e9, 1e8) for delay in (0.0, 0.01)]
    fitted = fit([Observed(truth.seconds(bandwidth) - 0.1 * delay, bandwidth, delay) for bandwidth, delay in points])
    assert fitted.waits == 0
    assert fitted == pytest.approx(truth, rel=0.02)


def test_a_fit_minds_relative_errors():
    """A tenth of a short step counts as much as a tenth of a long one: the middle is not left to the longest."""
    points = [Observed(0.011, 1e15), Observed(0.009, 1e15), Observed(1.0, 1e6)]
    assert fit(points).compute == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("points", [[], [Observed(1.0)], [Observed(1.0, 1e8), Observed(1.1, 1e8)]])
def test_ambiguous_names_are_refused(points):
    with pytest.raises(ValueError, match="two bandwidths"):
        fit(points)


def test_a_delay_and_a_bandwidth_that_change_together_are_refused():
    with pytest.raises(ValueError, match="tell"):
        fit([Observed(1.0, 1e8, 0.0), Observed(2.0, 1e7, 0.01)])
