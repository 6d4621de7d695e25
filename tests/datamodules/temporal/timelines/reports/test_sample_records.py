"""Tests the records of samples and answers in a report: units, marks and metrics."""

import numpy as np
import pytest

from datamodules.multimodal.reports.html_report import MetricRow
from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import KEYS, Format
from datamodules.temporal.timelines.reports.sample_records import answer_metrics, answer_record, question_record
from datamodules.temporal.timelines.reports.sample_view import MarkKind
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from tests.support.temporal.report_records import shown


def test_curves_are_in_physical_units_with_null_where_missing():
    first, second = shown().as_record()["curves"]
    assert first == {"channel": "cpu_cores", "unit": "cores", "capacity": 64.0, "values": [32.0, 16.0, 48.0, 64.0]}
    assert second["values"] == [8.0, None, 24.0, 32.0]


@pytest.mark.parametrize("format", list(Format))
def test_marks_of_a_sample_lie_on_its_curve(format):
    """A true point lies on the curve, except for the means of a trend."""
    synthesis = SyntheticTimelines(seed=3, format=format)
    points = 0
    for index in range(200):
        sample = synthesis.sample(Split.TEST, 0, index)
        record = question_record(index, sample, synthesis.notation)
        assert record.template, (record.question, record.truth)
        assert record.truth_template, (record.question, record.truth)
        assert record.reads_back
        column = record.channels.index(record.asked_channel)
        physical = sample.values[:, column] * sample.capacities[column]
        for mark in record.marks:
            assert mark.channel == record.asked_channel
            if record.task == "trend" or mark.time_s is None or mark.value is None:
                continue
            step = round(mark.time_s * 1000 / sample.step_ms)
            assert sample.present[step, column]
            assert mark.value == pytest.approx(physical[step], abs=1e-4 * sample.capacities[column])
            points += mark.kind == MarkKind.TRUE
    assert points > 100


def test_answers_are_marked_and_graded():
    """The reference is right; a wrong number is marked at the answered position, in the channel's unit."""
    synthesis = SyntheticTimelines(seed=4, task_mix={"bottleneck": 1})
    samples = [synthesis.sample(Split.TEST, 0, index) for index in range(20)]
    for index, sample in enumerate(samples):
        record = answer_record(index, sample, synthesis.notation, sample.answer, "")
        true, predicted = ([mark for mark in record.marks if mark.kind == kind] for kind in list(MarkKind)[1:])
        assert record.errors == ()
        assert record.blind_errors
        assert len(true) == 1
        assert [mark[1:] for mark in true] == [mark[1:] for mark in predicted]
        assert all(reached == possible for reached, possible in record.outcomes.values())

    sample = samples[0]
    capacity = sample.capacities[KEYS.index(sample.facts.channel)]
    name = sample.answer.split()[0]
    wrong = answer_record(0, sample, synthesis.notation, f"{name} is lowest with 250% at step 9000.", "")
    assert wrong.errors == ("value", "time")
    (mark,) = (mark for mark in wrong.marks if mark.kind == MarkKind.PREDICTED)
    assert (mark.value, mark.time_s) == (pytest.approx(2.5 * capacity), pytest.approx(900.0))


def test_metrics_are_of_all_and_of_each_task():
    synthesis = SyntheticTimelines(seed=5)
    samples = [synthesis.sample(Split.TEST, 0, index) for index in range(60)]
    # Every second is answered; the blind answers are all the same.
    output = [(sample.answer if index % 2 else "", "now.") for index, sample in enumerate(samples)]
    metrics = {(metric.task, metric.name): metric for metric in answer_metrics(samples, output, synthesis.notation)}
    assert metrics["all", "exact"] == MetricRow("all", "exact", 0.5, 0.0, 1.0)
    assert {task for task, _ in metrics} == {"all", "trend", "bottleneck", "feasibility", "readout"}
    trends = [index % 2 for index, sample in enumerate(samples) if sample.facts.task == "trend"]
    assert metrics["trend", "class right"].model == pytest.approx(np.mean(trends))
    assert all(metric.rules == 1.0 for metric in metrics.values())
