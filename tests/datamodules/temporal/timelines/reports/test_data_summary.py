"""Tests the statistics of a data report, and which examples it has."""

import numpy as np

from datamodules.temporal.timelines.reports.data_summary import choose_examples, summarize_samples
from tests.support.temporal.report_records import shown


def test_summary_counts_what_is_there():
    samples = [
        shown(0, truth_class="rising", template="a"),
        shown(1, truth_class="stable", template="a", question="longer question?"),
        shown(2, task="readout", template="b", truth_template="c", reads_back=False),
    ]
    summary = summarize_samples(samples, count_tokens=lambda text: len(text.split()))
    assert summary["tasks"] == {"trend": 2, "readout": 1}
    assert summary["classes"] == {"trend": {"rising": 1, "stable": 1}}
    assert summary["templates"] == {"question": {"trend: a": 2, "readout: b": 1}, "answer": {"readout: c": 1}}
    assert list(summary["violations"].values()) == [0, 1]
    assert summary["steps"] == {"min": 4, "median": 4, "mean": 4, "max": 4}
    assert summary["seconds"]["max"] == 0.4
    assert summary["missing"] == {"measurements": 3 / 24, "series": 1.0}
    assert summary["texts"]["question, characters"] == {"min": 13, "median": 13, "mean": 14, "max": 16}
    assert summary["texts"]["question, tokens"]["max"] == 3
    cpu, memory = summary["channels"]
    assert cpu["values"] == {"min": 16, "median": 40, "mean": 40, "max": 64}
    assert (cpu["measurements"], cpu["full"], cpu["empty"], cpu["missing"], cpu["outside"]) == (12, 0.25, 0, 0, 0)
    # The missing measurement's 0 is none.
    assert (memory["measurements"], memory["empty"], memory["missing"]) == (9, 0, 0.25)
    assert sum(memory["histogram"]) == 9


def test_values_that_no_machine_has_are_counted():
    values = np.array([[1.5, 0.1], [-0.1, np.nan], [np.nan, 0.3], [1.0, 0.4]])
    cpu, memory = summarize_samples([shown(values=values)])["channels"]
    assert (cpu["outside"], memory["outside"]) == (3, 0)


def test_nothing_to_report_is_a_report():
    assert summarize_samples([])["samples"] == 0
    nothing = summarize_samples([shown(present=np.zeros((4, 2), np.bool_))])
    assert nothing["channels"][0]["values"]["max"] is None


def test_examples_come_from_every_task_and_class():
    classes = ["rising"] * 50 + ["stable"] * 2 + ["falling"]
    samples = [shown(number, truth_class=name) for number, name in enumerate(classes)]
    chosen = choose_examples(samples, 7)
    assert [sample.sample for sample in chosen] == [0, 1, 2, 3, 50, 51, 52]
