"""Tests that questions which give their class away are found."""

import numpy as np

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.reports.leak_check import check_leaks
from datamodules.temporal.timelines.reports.sample_records import question_record
from datamodules.temporal.timelines.reports.sample_view import SampleView
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from tests.support.temporal.report_records import shown


def leaky(requirement_tells: bool) -> list[SampleView]:
    random = np.random.Generator(np.random.Philox(key=5))
    samples = []
    for number in range(1200):
        verdict = ("now", "later", "never")[number % 3]
        share = (number % 3 + random.random()) / 3 if requirement_tells else random.random()
        # The value alone is no clue, but its share of the capacity is.
        capacity = float(random.choice([8, 16, 64, 128]))
        amounts = {"channel": "cpu", "requirement": share * capacity, "share": share, "capacity": capacity}
        samples.append(shown(number, task="feasibility", truth_class=verdict, asked=amounts))
    return samples


def test_a_question_that_gives_its_class_away_is_found():
    (leak,) = check_leaks(leaky(True))
    assert leak.suspicious
    assert leak.guess > 0.8
    assert "share" in leak.clue
    (none,) = check_leaks(leaky(False))
    assert not none.suspicious
    assert none.guess < 0.45


def test_a_wording_that_gives_its_class_away_is_found():
    samples = [sample._replace(question=f"{sample.truth_class} {i}?") for i, sample in enumerate(leaky(False))]
    (leak,) = check_leaks(samples)
    assert leak.suspicious
    assert leak.clue == "wording"
    assert leak.guess == 1.0


def test_our_questions_give_nothing_away():
    synthesis = SyntheticTimelines(seed=11, task_mix={"trend": 1, "feasibility": 1})
    records = [
        question_record(index, synthesis.sample(Split.TRAIN, 0, index), synthesis.notation) for index in range(1000)
    ]
    leaks = check_leaks(records)
    assert {leak.task for leak in leaks} == {"trend", "feasibility"}
    assert [leak for leak in leaks if leak.suspicious] == []
