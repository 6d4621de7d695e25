"""Tests that a plot shows the measurements and the queried, true and predicted points."""

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.reports.plot import COLORS, FAINT, GAP, INK, LEFT, PANEL, WIDTH, draw_timeline
from datamodules.temporal.timelines.reports.sample_records import answer_record
from datamodules.temporal.timelines.reports.sample_view import Mark, MarkKind
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from tests.support.temporal.report_records import shown

TOPS = (GAP, 2 * GAP + PANEL)
"""Vertical positions where the panels of the two channels begin."""


def pixels(**changes):
    return np.asarray(draw_timeline(shown(asked_channel="cpu_cores", **changes)))


def panel(picture, number):
    return picture[TOPS[number] : TOPS[number] + PANEL + 1, LEFT : WIDTH - LEFT + 1]


def column(picture, number, share, color):
    """The share of the height at which a color stands, from the bottom, at a share of the width."""
    found = panel(picture, number)
    rows = np.flatnonzero((found[:, round(share * (found.shape[1] - 1))] == color).all(1))
    return None if len(rows) == 0 else 1 - rows.mean() / PANEL


def test_curves_go_through_their_values_and_are_broken_where_nothing_was_measured():
    picture = pixels()
    for step, value in enumerate((0.5, 0.25, 0.75)):
        assert column(picture, 0, step / 3, INK) == pytest.approx(value, abs=0.03)
    assert column(picture, 0, 1 / 6, INK) == pytest.approx(0.375, abs=0.03)
    assert column(picture, 1, 5 / 6, FAINT) == pytest.approx(0.35, abs=0.03)
    assert column(picture, 1, 1 / 6, FAINT) is None
    assert column(picture, 1, 1 / 2, FAINT) is None


@pytest.mark.parametrize("kind", MarkKind)
def test_marks_have_their_positions_and_colors(kind):
    def drawn(time, value):
        return (pixels(marks=(Mark(kind, "gpu_mem_gb", time, value),)) == COLORS[kind]).all(2)

    level = drawn(None, 40.0)
    assert level[TOPS[1] + PANEL // 2, LEFT:-LEFT].all()
    assert not level[: TOPS[1]].any()
    moment = drawn(0.1, None)
    assert moment[TOPS[1] : TOPS[1] + PANEL, LEFT + (WIDTH - 2 * LEFT) // 3].all()
    rows, columns = np.nonzero(drawn(0.3, 80.0)[: TOPS[1] + PANEL])
    assert abs(rows.mean() - TOPS[1]) < 3
    assert abs(columns.mean() - (WIDTH - LEFT)) < 3
    assert not drawn(1e9, None)[: TOPS[1] + PANEL].any(), "an answer may name any time"
    assert drawn(None, 1e9)[TOPS[1], LEFT:-LEFT].all(), "and of any value"


@pytest.mark.parametrize(
    "messages", ["", "9" * 5000, "cpu at step {n} is {n}%.", "cpu is lowest with {n}% at step {n}."]
)
def test_any_answer_can_be_plotted(messages):
    """Both formats are drawn; an untrained model repeats digits up to its limit."""
    for format in ("tiny", "full"):
        synthesis = SyntheticTimelines(format=format)
        for index in range(6):
            sample = synthesis.sample(Split.VALIDATION, 0, index)
            answer = messages.replace("{n}", "9" * 400)
            picture = draw_timeline(answer_record(index, sample, synthesis.notation, answer, answer))
            assert picture.size[0] == WIDTH
