"""Tests questions about windows of recorded timelines: balanced classes and refused recordings."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.timelines.channels import KEYS
from datamodules.temporal.timelines.grading import grade
from datamodules.temporal.timelines.recorded.dataset import RecordedTimelines
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from datamodules.temporal.timelines.text.facts import Task

REAL = Path(__file__).resolve().parents[6] / "shared" / "data" / "timelines" / "gentd26_timelines.npz"


def csv_of(tmp_path, columns, name="node.csv", step=100):
    lines = ["time_ms," + ",".join(columns)]
    for number, row in enumerate(zip(*columns.values(), strict=True)):
        cells = ("" if np.isnan(value) else f"{value:g}" for value in row)
        lines.append(f"{number * step}," + ",".join(cells))
    (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / name


def wave(steps=300, low=10, high=90):
    return np.round((low + high) / 2 + (high - low) / 2 * np.sin(np.arange(steps) / 12))


def test_a_sample_is_a_window_of_the_recording(tmp_path):
    source = RecordedTimelines(csv_of(tmp_path, {"gpu_sm": wave(), "cpu_cores": np.full(300, 8)}))
    for index in range(100):
        sample = source.sample(Split.TEST, 0, index)
        pixels = np.round(sample.values[:, 2] * 100)
        windows = np.lib.stride_tricks.sliding_window_view(wave(), len(pixels))
        assert (windows == pixels).all(1).any()
        assert sample.present.any(0).tolist() == [True, False, True, False]
        assert sample.facts.channel in ("gpu_sm", "cpu_cores")
        assert PLACEHOLDER in sample.question
        outcomes = grade(sample.facts, sample.answer, source.notation)
        assert all(reached == possible for reached, possible in outcomes.values())
        again = RecordedTimelines(source.path).sample(Split.TEST, 0, index)
        assert (again.values == sample.values).all()
        assert again[2:] == sample[2:]


def test_only_channels_that_are_there_are_asked_about(tmp_path):
    lost = np.full(300, np.nan)
    lost[:10] = 5
    source = RecordedTimelines(csv_of(tmp_path, {"gpu_sm": wave(), "cpu_cores": lost}))
    assert {source.sample(Split.TEST, 0, index).facts.channel for index in range(100)} == {"gpu_sm"}


def test_classes_come_in_equal_parts_where_windows_of_each_are_there(tmp_path):
    path = csv_of(tmp_path, {"gpu_sm": wave(1000, 0, 100)})
    for task in ("trend", "feasibility"):
        source = RecordedTimelines(path, SyntheticTimelines(task_mix={task: 1}))
        facts = [source.sample(Split.TEST, 0, index).facts for index in range(300)]
        counts = Counter(fact.direction or fact.verdict for fact in facts)
        # A small requirement is never refused for long here, so "never" is a little rarer.
        assert min(counts.values()) > 60
        assert len(counts) == 3


def test_without_balance_windows_come_as_they_are(tmp_path):
    path = csv_of(tmp_path, {"gpu_sm": np.full(300, 100)})
    source = RecordedTimelines(path, SyntheticTimelines(task_mix={"feasibility": 1}), balanced=False)
    assert {source.sample(Split.TEST, 0, index).facts.verdict.value for index in range(50)} == {"now"}


@pytest.mark.parametrize(
    "columns, messages",
    [
        ({"gpu_sm": wave(10)}, "the longest timeline has 10 steps, expected min_steps .16."),
        ({"gpu_sm": np.where(np.arange(100) % 3, np.nan, 50)}, "no channel has 60% of its samples"),
    ],
)
def test_recordings_of_which_nothing_can_be_asked_are_refused(tmp_path, columns, messages):
    with pytest.raises(ValueError, match=messages):
        RecordedTimelines(csv_of(tmp_path, columns)).sample(Split.TEST, 0, 0)


def test_recordings_with_different_steps_are_refused(tmp_path):
    csv_of(tmp_path, {"gpu_sm": wave()}, "a.csv")
    csv_of(tmp_path, {"gpu_sm": wave()}, "b.csv", step=200)
    with pytest.raises(ValueError, match="found steps of 100, 200 ms"):
        RecordedTimelines(tmp_path).sample(Split.TEST, 0, 0)


@pytest.mark.skipif(not REAL.is_file(), reason=f"the GenTD26 timelines are not at {REAL}")
@pytest.mark.parametrize("format", ["tiny", "full"])
def test_real_pods_are_asked_about_what_was_measured(format):
    source = RecordedTimelines(REAL, SyntheticTimelines(format=format))
    assert len(source.recordings) == 97
    tasks = Counter()
    for index in range(200):
        sample = source.sample(Split.TEST, 0, index)
        assert sample.facts.channel != "cpu_cores"
        assert not sample.present[:, 0].any()
        assert sample.present[:, KEYS.index(sample.facts.channel)].mean() >= 0.6
        assert sample.step_ms == 57_000
        outcomes = grade(sample.facts, sample.answer, source.notation)
        assert all(reached == possible for reached, possible in outcomes.values())
        tasks[sample.facts.task] += 1
    assert set(tasks) == set(Task)


def test_a_check_at_the_start_leaves_no_sample_to_fail(tmp_path):
    """Channels with 60 % of their samples, of which windows of most lengths have less."""
    values = np.full(150, 50.0)
    values[45:105] = np.nan
    source = RecordedTimelines(csv_of(tmp_path, {"gpu_sm": values}), SyntheticTimelines(min_steps=16, max_steps=100))
    source.check()
    for index in range(40):
        assert source.sample(Split.TEST, 0, index).present[:, 2].mean() >= 0.6


def test_stamps_of_which_no_window_follows_are_refused_at_the_start(tmp_path):
    lines = [f"{number * 100 + (number == 7)},50" for number in range(30)]
    (tmp_path / "node.csv").write_text("time_ms,gpu_sm\n" + "\n".join(lines))
    with pytest.raises(
        ValueError, match="node.csv, line 9, time_ms: found a step of 101 ms, but most steps are 100 ms"
    ):
        RecordedTimelines(tmp_path / "node.csv").check()
    sparse = np.where(np.arange(100) % 3, np.nan, 50)
    with pytest.raises(ValueError, match="the fullest is gpu_sm with 34%"):
        RecordedTimelines(csv_of(tmp_path, {"gpu_sm": sparse})).check()


def test_files_that_are_not_read_are_listed(tmp_path, caplog):
    csv_of(tmp_path, {"gpu_sm": wave()}, "a.CSV")
    csv_of(tmp_path, {"gpu_sm": wave(10)}, "short.csv")
    for name in ("b.csv.gz", "notes.txt", ".hidden"):
        (tmp_path / name).touch()
    assert [recording.name for recording in RecordedTimelines(tmp_path).recordings] == ["a"]
    assert "2 entries are not read, as they do not end in .csv: b.csv.gz, notes.txt" in caplog.text
    assert "1 of 2 timelines have less than min_steps (16) and are not used: short" in caplog.text
