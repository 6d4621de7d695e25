"""Tests the points of answers about timelines."""

from dataclasses import replace

import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import Format
from datamodules.temporal.timelines.grading import OUTCOMES, errors, grade
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from datamodules.temporal.timelines.text.facts import Direction, Facts, StartTime, Task
from datamodules.temporal.timelines.text.number_format import Notation
from datamodules.temporal.timelines.text.question_text import answer

TINY, FULL = Notation(Format.TINY, 100), Notation(Format.FULL, 100)
TREND = Facts(Task.TREND, "gpu_sm", 100.0, 30, direction=Direction.FALLING, start=42.0, end=4.0)
LATER = Facts(Task.FEASIBILITY, "gpu_sm", 100.0, 30, requirement=50.0, value=52.0, time=12, verdict=StartTime.LATER)
MEMORY = Facts(Task.BOTTLENECK, "gpu_mem_gb", 80.0, 30, value=8.0, time=20)
READ = Facts(Task.READOUT, "gpu_sm", 100.0, 30, times=(3, 9), values=(40.0, 10.0))


@pytest.mark.parametrize("settings", [{}, {"format": "full", "min_steps": 20, "max_steps": 100}], ids=["tiny", "full"])
def test_the_rules_reach_every_point(settings):
    synthesis, reported = SyntheticTimelines(**settings, missing_probability=0.3), set()
    for index in range(800):
        sample = synthesis.sample(Split.TEST, 0, index)
        outcomes = grade(sample.facts, sample.answer, synthesis.notation)
        for name, (reached, possible) in outcomes.items():
            assert reached == possible > 0, (name, sample.answer)
        again = answer(sample.facts, synthesis.notation, lambda bound: bound - 1)
        assert grade(sample.facts, again, synthesis.notation) == outcomes
        assert errors(sample.facts, sample.answer, synthesis.notation) == ()
        reported |= set(outcomes)
    assert reported == set(OUTCOMES) - (set() if settings else {"pace_right", "trend/pace_right"})


def test_near_is_distinguished_from_far():
    outcomes = grade(TREND, "sm is decreasing from 46% to 15%.", TINY)
    assert outcomes["value_within_5_percent"] == (1, 2)  # 4 points and 11 points beside
    assert outcomes["value_within_1_percent"] == (0, 2)
    assert outcomes["value_relative_5_percent"] == (0, 2)
    assert outcomes["class_right"] == outcomes["trend/class_right"] == outcomes["parsed"] == (1, 1)
    assert outcomes["exact"] == (0, 1)
    assert outcomes["number_closeness"] == (pytest.approx(1 - 4 / 42), 2)
    assert "time_within_1_step" not in outcomes
    assert errors(TREND, "sm is stable from 46% to 15%.", TINY) == ("class", "value")


@pytest.mark.parametrize("text", ["", "no idea", "sm 42 4", "<|pad|>" * 10])
def test_an_unreadable_answer_is_wrong(text):
    outcomes = grade(TREND, text, TINY)
    assert all(reached == 0 for reached, _ in outcomes.values())
    assert outcomes["value_within_5_percent"] == (0, 2)
    assert outcomes["class_right"] == (0, 1)
    assert "unreadable" in errors(TREND, text, TINY)


def test_copying_the_question_earns_nothing():
    outcomes = grade(LATER, "when is 50% of sm free?", TINY)
    assert all(reached == 0 for reached, _ in outcomes.values())
    # The question states the times of a read-out; only values at these times count.
    outcomes = grade(READ, "sm at step 3 is 39%, at step 10 is 10%.", TINY)
    assert outcomes["value_within_5_percent"] == (1, 2)
    assert outcomes["parsed"] == (0, 1)
    assert set(outcomes) & {"time_within_1_step"} == set()


@pytest.mark.parametrize("time, reached", [(11, 1), (12, 1), (13, 1), (14, 0)])
def test_a_time_may_be_one_step_beside(time, reached):
    assert grade(LATER, f"later, sm is 52% at step {time}.", TINY)["time_within_1_step"] == (reached, 1)


def test_an_answer_in_another_unit_is_wrong():
    right, wrong = (f"The available GPU memory has its minimum of 8.0{unit} at t=2.0s." for unit in (" GB", "%"))
    assert grade(MEMORY, right, FULL)["exact"] == (1, 1)
    assert grade(MEMORY, wrong, FULL)["value_within_5_percent"] == (0, 1)


def test_tolerances_are_shares_of_the_channels_capacity():
    text = "The available GPU memory has its minimum of 11.9 GB at t=2.0s."
    assert grade(MEMORY, text, FULL)["value_within_5_percent"] == (1, 1)  # 3.9 of 80
    assert grade(MEMORY, text, FULL)["value_within_1_percent"] == (0, 1)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (Facts(Task.BOTTLENECK, "gpu_sm", 100.0, 30, value=3.0, time=4), "later, sm is 3% at step 4."),
        (READ, "sm at step 3 is 40%, at step 9 is 10%, at step 11 is 77%."),
        (READ, "sm at step 3 is 12%, at step 3 is 40%, at step 9 is 10%."),
    ],
    ids=["of another task", "of another time", "twice"],
)
def test_an_answer_with_additional_content_is_not_exact(facts, text):
    outcomes = grade(facts, text, TINY)
    assert outcomes["parsed"] == (1, 1)
    assert outcomes["exact"] == (0, 1)


def test_numbers_near_zero_are_close_or_not():
    facts = Facts(Task.BOTTLENECK, "gpu_sm", 100.0, 30, value=0.0, time=4)
    assert grade(facts, "sm is lowest with 0% at step 8.", TINY)["number_closeness"] == (1.0, 2)
    assert grade(facts, "sm is lowest with 3% at step 4.", TINY)["number_closeness"] == (1.0, 2)


def test_answers_about_another_channel_score_nothing():
    output = "sm is decreasing from 42% to 4%."
    assert grade(TREND, output, TINY)["exact"] == (1, 1)
    other = grade(replace(TREND, channel="cpu_cores"), output, TINY)
    assert other["parsed"][1]
    assert all(reached == 0 for reached, _ in other.values())
