"""Tests that the keys of the experiment trackers are known where the trackers are not imported."""

from callbacks.trackers.tracker_keys import TRACKER_KEYS
from callbacks.trackers.tracker_registry import TRACKERS
from commands.report.settings_diff import seed_groups
from commands.runs.run_directory import remove_untrained_run


def test_each_tracker_has_its_key():
    assert [tracker.KEY for tracker in TRACKERS] == list(TRACKER_KEYS)


def test_a_folder_of_trackers_alone_is_no_run(tmp_path):
    for key in TRACKER_KEYS:
        (tmp_path / "run" / key).mkdir(parents=True)
    remove_untrained_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_of_trackers_make_no_two_runs_different():
    settings = [{"seed_everything": str(seed), **{f"{key}.name": f"{seed}" for key in TRACKER_KEYS}} for seed in (1, 2)]
    assert seed_groups(settings) == [[0, 1]]
