"""Tests that a curve of any length becomes a bounded number of points."""

import math
import random

import pytest

from commands.report.downsample import DownsampledSeries


def filled(values, at_most):
    course = DownsampledSeries(at_most)
    for step, value in enumerate(values):
        assert course.add(step, 2.0 * step, value)
    return course


def test_a_short_course_stays_as_it_is():
    points = filled([3.0, 1.0, 2.0], 10).points()
    assert [(point.step, point.time, point.mean, point.low, point.high) for point in points] == [
        (0, 0, 3, 3, 3),
        (1, 2, 1, 1, 1),
        (2, 4, 2, 2, 2),
    ]


@pytest.mark.parametrize("length", [100, 101, 1000, 12_345])
def test_a_long_course_keeps_mean_and_extremes(length):
    values = [random.Random(length).gauss(0, 1) for _ in range(length)]
    values[length // 3] = 1000.0  # one peak
    course = filled(values, 100)
    points = course.points()
    assert 50 <= len(points) <= 100
    for index, point in enumerate(points):
        of_it = values[index * course.width : (index + 1) * course.width]
        steps = range(length)[index * course.width : (index + 1) * course.width]
        assert point.mean == pytest.approx(sum(of_it) / len(of_it))
        assert (point.low, point.high) == (min(of_it), max(of_it))
        assert point.step == pytest.approx(sum(steps) / len(steps))
        assert point.time == pytest.approx(2 * point.step)
    assert sum(point.high == 1000.0 for point in points) == 1


def test_nan_and_infinity_leave_a_gap_and_neighbours_unchanged():
    points = filled([1.0, math.nan, math.inf, math.nan, 5.0, 7.0], 6).points()
    assert [point.mean for point in points] == [1, None, None, None, 5, 7]
    thinned = filled([1.0, math.nan, math.inf, math.nan, 5.0, 7.0], 4)
    assert [point.mean for point in thinned.points()] == [1, None, 6]
    assert (thinned.points()[0].low, thinned.points()[0].high) == (1, 1)


def test_points_of_earlier_steps_are_refused():
    course = filled([1.0, 2.0, 3.0], 10)
    assert not course.add(1, 100.0, 9.0)
    assert not course.add(2, 100.0, 9.0)
    assert course.add(3, 100.0, 4.0)
    assert [point.mean for point in course.points()] == [1, 2, 3, 4]


def test_one_point_is_no_curve():
    with pytest.raises(ValueError, match="at least 2 points, got 1"):
        DownsampledSeries(1)
