"""The same samples are previewed with any batch size, order and number of ranks."""

import pytest

from engine.telemetry import sample_previews
from engine.telemetry.sample_previews import PreviewReservoir, select_preview_ids


def test_previews_are_spread_over_the_whole_set():
    ids = select_preview_ids(range(1000), 8)
    assert len(ids) == 8
    assert ids == sorted(ids)
    assert ids[0] < 300
    assert ids[-1] > 700
    assert max(ids) - min(ids) > 500
    assert select_preview_ids(range(3), 8) == [0, 1, 2]
    assert select_preview_ids([], 8) == []
    assert select_preview_ids(range(9), 0) == []
    assert set(ids[:4]) <= set(select_preview_ids(ids[:4] + [5], 4)) | {5}


@pytest.mark.parametrize("batch", [1, 7, 64, 1000])
@pytest.mark.parametrize("processes", [1, 3])
def test_previews_do_not_depend_on_batches_or_ranks(batch, processes, monkeypatch):
    reservoirs, selected = [], 0
    for process in range(processes):
        reservoir = PreviewReservoir()
        reservoir.number = 8
        for start in range(process * batch, 1000, processes * batch):
            samples = [*range(start, min(start + batch, 1000)), -1]
            for row in reservoir.rows_to_keep(samples):
                selected += 1
                reservoir.keep(samples[row], f"content of {samples[row]}")
        reservoirs.append(reservoir)
    monkeypatch.setattr(sample_previews, "all_gather_objects", lambda own: [each._kept for each in reservoirs])
    expected = [(sample, f"content of {sample}") for sample in select_preview_ids(range(1000), 8)]
    assert all(reservoir.gather() == expected for reservoir in reservoirs)
    assert selected <= 200, "few contents are computed and dropped again"


def test_nothing_is_kept_without_previews_or_after_a_reset():
    reservoir = PreviewReservoir()
    assert reservoir.rows_to_keep([1, 2, 3]) == []
    reservoir.number = 2
    assert reservoir.rows_to_keep([-1, -1]) == []
    assert reservoir.rows_to_keep([-1, 5]) == [1]
    reservoir.keep(5, "old")
    reservoir.reset()
    assert reservoir.gather() == []
