"""Tests the reading of recorded timelines: CSV, the usage of pods, capacities and gaps."""

import numpy as np
import pytest

from datamodules.temporal.timelines.recorded.recording_reader import read, read_csv, read_npz

HEADER = "time_ms,cpu_cores,gpu_sm\n"


def written(tmp_path, text, name="node.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_gives_shares_of_the_capacities_it_shows(tmp_path):
    recording = read_csv(written(tmp_path, HEADER + "0,8,100\n100,12,50\n200,16,25.5\n"))
    assert recording.name == "node"
    assert recording.step_ms == 100
    assert recording.capacities == (16.0, 32.0, 100.0, 16.0)
    assert recording.shares[:, 0].tolist() == [0.5, 0.75, 1.0]
    assert recording.shares[:, 2].tolist() == [1.0, 0.5, 0.255]
    assert np.isnan(recording.shares[:, [1, 3]]).all()


def test_capacities_may_be_declared(tmp_path):
    path = written(tmp_path, HEADER + "0,8,100\n100,12,50\n")
    assert read_csv(path, {"cpu_cores": 24}).shares[0, 0] == 8 / 24
    with pytest.raises(ValueError, match=r"line 3, cpu_cores: found 12, expected 0 to 10"):
        read_csv(path, {"cpu_cores": 10})
    with pytest.raises(ValueError, match="capacities: found disk, expected some of cpu_cores"):
        read_csv(path, {"disk": 10})


def test_empty_cells_and_lacking_rows_are_missing_samples(tmp_path):
    recording = read_csv(written(tmp_path, HEADER + "500,8,\n600,8,50\n\n900,8,25\n"))
    assert recording.step_ms == 100
    assert np.isnan(recording.shares[:, 2]).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("times", [(0, 300, 400), (0, 200, 400, 500), (0, 100, 500)])
def test_the_step_is_the_smallest_distance_wherever_a_gap_is(tmp_path, times):
    rows = "".join(f"{time},8,50\n" for time in times)
    recording = read_csv(written(tmp_path, HEADER + rows))
    assert recording.step_ms == 100
    assert np.flatnonzero(~np.isnan(recording.shares[:, 2])).tolist() == [time // 100 for time in times]


@pytest.mark.parametrize(
    "text, messages",
    [
        ("", "found an empty file, expected a line with time_ms"),
        ("time_ms,disk\n0,1\n", r"line 1: found the columns time_ms, disk, expected time_ms and some of cpu_cores"),
        ("time_ms,gpu_sm,gpu_sm\n0,1,1\n", "line 1: .* each once"),
        ("gpu_sm\n1\n", "line 1: found the columns gpu_sm"),
        (HEADER + "0,8,100\n", "found 1 lines of values, expected 2"),
        (HEADER + "0,8,100\n100,8\n", "line 3: found 2 cells, expected 3"),
        (HEADER + "0,8,100\n100,x,100\n", "line 3, cpu_cores: found 'x', expected a number"),
        (HEADER + "0,8,100\n,8,100\n", "line 3, time_ms: found '', expected a number of milliseconds"),
        (HEADER + "0,8,100\n100,8,100\n100,8,100\n", "line 4, time_ms: found a step of 0 ms"),
        (HEADER + "0,8,100\n100,8,100\n250,8,100\n", "line 4, time_ms: found 250, expected whole steps of 100 ms"),
        (HEADER + "0,8,100\n0.5,8,100\n", "found a step of 0.5 ms, expected whole milliseconds"),
        (HEADER + "0,8,100\n100,-1,100\n", "line 3, cpu_cores: found -1, expected 0 to 8"),
        (HEADER + "0,8,100\n100,inf,100\n", "line 3, cpu_cores: found 'inf', expected a number"),
    ],
)
def test_errors_are_reported_with_file_and_line(tmp_path, text, messages):
    with pytest.raises(ValueError, match="node.csv.*" + messages):
        read_csv(written(tmp_path, text))


def pods(tmp_path, **changes):
    values = np.zeros((2, 30, 3), np.float32)
    values[0, :, 0], values[0, :, 1], values[0, :, 2] = 30, 20, 75
    values[1, 3, 0] = np.nan
    held = {"values": values, "channels": np.array(["gpu_sm", "gpu_mem_gb", "mem_util"])}
    held |= {"container": np.array(["a", "b"]), "dt_s": np.float64(57.0)} | changes
    np.savez(tmp_path / "pods.npz", **{name: value for name, value in held.items() if value is not None})
    return tmp_path / "pods.npz"


def test_usage_of_pods_is_read_as_free_capacity(tmp_path):
    first, second = read_npz(pods(tmp_path))
    assert (first.name, first.step_ms) == ("a", 57_000)
    assert np.isnan(first.shares[:, 0]).all()
    assert np.allclose(first.shares[0, 1:], [0.25, 0.7, 1 - 20 / 24])
    assert first.capacities[3] == 24
    assert np.isnan(second.shares[3, 2])
    assert second.shares[0, 2] == 1.0


@pytest.mark.parametrize(
    "changes, messages",
    [
        ({"container": None}, "expected values, channels, container, dt_s"),
        ({"container": np.array(["a"])}, r"found values \(2, 30, 3\) of 1 pods and 3 channels"),
        ({"channels": np.array(["gpu_sm", "gpu_mem_gb", "disk"])}, "found the channels gpu_sm, gpu_mem_gb, disk"),
        ({"values": np.array([{}], object)}, "allow_pickle=False"),
    ],
)
def test_another_npz_is_refused(tmp_path, changes, messages):
    with pytest.raises(ValueError, match=messages):
        read_npz(pods(tmp_path, **changes))


def test_a_folder_holds_one_timeline_a_file(tmp_path):
    for name in ("b.csv", "a.csv"):
        written(tmp_path, HEADER + "0,8,100\n100,8,50\n", name)
    assert [recording.name for recording in read(tmp_path)] == ["a", "b"]
    with pytest.raises(ValueError, match="expected a .csv file, an .npz file or a folder"):
        read(tmp_path / "a.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="found no .csv file"):
        read(tmp_path / "empty")


@pytest.mark.parametrize("capacity", [0, -1, float("inf"), float("nan")])
def test_a_capacity_is_above_0(tmp_path, capacity):
    with pytest.raises(ValueError, match="capacities: cpu_cores is .*, expected a number above 0"):
        read_csv(written(tmp_path, HEADER + "0,8,100\n100,12,50\n"), {"cpu_cores": capacity})
