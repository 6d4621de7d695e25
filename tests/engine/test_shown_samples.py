"""Which samples are shown: the same ones whatever the batches, their order and the processes."""

import pytest

from engine import shown_samples
from engine.shown_samples import ShownSamples, chosen


def test_they_are_spread_over_the_whole_set():
    found = chosen(range(1000), 8)
    assert len(found) == 8 and found == sorted(found)
    assert found[0] < 300 and found[-1] > 700 and max(found) - min(found) > 500
    assert chosen(range(3), 8) == [0, 1, 2] and chosen([], 8) == [] and chosen(range(9), 0) == []
    assert set(found[:4]) <= set(chosen(found[:4] + [5], 4)) | {5}


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("processes", [1, 3])
def test_no_batch_and_no_process_changes_them(batch, processes, monkeypatch):
    teams, at_work = [], 0
    for process in range(processes):
        one = ShownSamples()
        one.number = 8
        for start in range(process * batch, 1000, processes * batch):
            samples = [*range(start, min(start + batch, 1000)), -1]
            for place in one.places(samples):
                at_work += 1
                one.keep(samples[place], f"content of {samples[place]}")
        teams.append(one)
    monkeypatch.setattr(shown_samples, "gathered_objects", lambda own: [one._kept for one in teams])
    expected = [(sample, f"content of {sample}") for sample in chosen(range(1000), 8)]
    assert all(one.of_all_processes() == expected for one in teams)
    assert at_work <= 200, "nearly nothing of an evaluation is computed for what is not shown"


def test_nothing_is_kept_where_nothing_is_wanted_or_an_evaluation_begins():
    one = ShownSamples()
    assert one.places([1, 2, 3]) == []
    one.number = 2
    assert one.places([-1, -1]) == [] and one.places([-1, 5]) == [1]
    one.keep(5, "old")
    one.forget()
    assert one.of_all_processes() == []
