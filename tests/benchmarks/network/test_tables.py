"""Prints results of two machines: measured, fitted and predicted times, each with its name."""

import json
import os

import pytest
from rich.console import Console

from benchmarks.network import measurements, prediction
from benchmarks.network.__main__ import main
from benchmarks.network.machines import UnsupportedMachineError
from benchmarks.network.prediction import Assumptions, Reported, Shards, predicted
from benchmarks.network.step_model import Cluster, StepModel
from benchmarks.network.tables import describe, rate, table

GRADIENTS = 4_000_000
TRUTH = StepModel(0.03, GRADIENTS)


def printed(sheet, capsys) -> str:
    Console(width=160).print(sheet)
    return capsys.readouterr().out


def rows(networks, slower_held_out=1.0):
    """Two turns each, of a network that follows the model, but for rows that are held out."""
    made = []
    for network in networks:
        point = network.observed(0.0)
        seconds = TRUTH.seconds(point.bandwidth) * (slower_held_out if network.held_out else 1)
        made.append({**network._asdict(), "seconds": [seconds, seconds], "sent": [GRADIENTS * 1.01] * 2})
    return made


def test_predictions_are_compared_with_held_out_bandwidths(capsys):
    measured = rows(measurements.BANDWIDTHS)
    result = measurements.result("bandwidth", [0.03, 0.03], measured, GRADIENTS)
    assert result["model"]["compute"] == pytest.approx(0.03)
    assert result["model"]["bytes"] == pytest.approx(GRADIENTS)
    assert result["goals"][0]["met"]
    assert result["goals"][0]["found"] < 1e-6
    assert result["sent_over_ring"] == pytest.approx(1.01)
    by_bandwidth = {row["bandwidth"]: row for row in result["rows"]}
    free, slow = by_bandwidth[None], by_bandwidth[100e6]
    assert free["efficiency"] == pytest.approx([1, 1])
    assert slow["efficiency"] == pytest.approx([0.03 / 0.35] * 2)
    assert slow["efficiency_bounds"] == pytest.approx((0.03 / 0.35, 0.03 / 0.33))
    output = printed(table(result), capsys)
    assert "t = 30.0 ms + 4.00 MB / bandwidth" in output
    assert "no limit" in output
    assert "1.010 times" in output
    assert output.count("*") >= 3
    assert "met" in output
    assert "72 kB at once (1.8% of the gradients)" in output


def test_a_model_that_is_off_is_shown_as_off(capsys):
    result = measurements.result("bandwidth", [0.03] * 2, rows(measurements.BANDWIDTHS, 1.25), GRADIENTS)
    assert result["goals"] == [{"text": result["goals"][0]["text"], "found": pytest.approx(0.2), "met": False}]
    assert "missed" in printed(table(result), capsys)
    assert result["rows"][0]["model_error"] == pytest.approx(0)


def test_delays_have_a_column_and_a_term(capsys):
    truth = StepModel(0.03, GRADIENTS, 6.0)
    made = [
        {**network._asdict(), "seconds": [truth.seconds(network.bandwidth, network.delay)], "sent": [GRADIENTS]}
        for network in measurements.DELAYS
    ]
    result = measurements.result("delay", [0.03], made, GRADIENTS)
    assert result["model"]["waits"] == pytest.approx(6)
    output = printed(table(result), capsys)
    assert "6.0 x delay" in output
    assert "one way ms" in output
    assert "third process" in output


def test_every_row_of_settings_is_shown_beside_the_first(capsys):
    variants = [("plain", [0.2, 0.2], 4e6), ("half", [0.1, 0.1], 2e6)]
    result = {
        "name": "settings",
        "bandwidth": 200e6,
        "gradient_bytes": GRADIENTS,
        "goals": [{"text": "half the bytes", "found": 0.5, "met": True}],
        "rows": [{"name": name, "seconds": seconds, "sent": [sent]} for name, seconds, sent in variants],
    }
    output = printed(table(result), capsys)
    assert "200 Mbit/s" in output
    assert "2.00 (2.00 to 2.00)" in output
    assert "half the bytes: met" in output


def test_predicted_rows_follow_the_formula_and_are_marked(capsys):
    assumed = Assumptions(compute=1.0, gradients=(1e9,), inside=100e9, between=(10e9,))
    result = predicted(assumed, [Reported(2, 4, "1.78x")])
    cell = result["rows"][0]["cells"][0]
    assert cell["low"] == Cluster(2, 4, 100e9, 10e9).speedup(1.0, 1e9) == pytest.approx(8 / 1.92)
    assert cell["high"] == pytest.approx(8 / (1.92 - 2 / 3))
    output = printed(prediction.table(result), capsys)
    assert "PREDICTED" in output
    assert "1.78x" in output
    assert "4.17 to 6.38" in output
    assert "1,000 MB" in output
    assert "assumed" in output
    assert "100 Gbit/s" in output


def test_the_sizes_that_the_guides_speak_of_are_predicted():
    sizes = {(row["nodes"], row["nodes"] * row["gpus"]) for row in predicted(Assumptions())["rows"]}
    assert {gpus for _, gpus in sizes} >= {4, 8, 16}
    assert {nodes for nodes, _ in sizes} >= {1, 2, 4}


def test_another_cluster_can_be_asked_for(tmp_path, capsys):
    report_path = tmp_path / "kept.json"
    arguments = ["--step", "0.5", "--gradients", "100", "--inside", "400", "--between", "25", "--between", "1"]
    main(["--only", "predicted", *arguments, "--json", str(report_path)])
    assumed = json.loads(report_path.read_text())["comparisons"][0]["assumptions"]
    assert assumed.pop("shards") == list(Shards())
    assert assumed == {"compute": 0.5, "gradients": [100e6], "inside": 400e9, "between": [25e9, 1e9]}
    output = capsys.readouterr().out
    assert "a step of 0.5 s" in output
    assert "the name of a family is for that family" in output


def test_the_benchmark_of_bandwidths_is_refused_without_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="not measured: .* root .* --only predicted"):
        main(["--only", "bandwidth"])


def test_a_part_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    def refused(repeats):
        raise UnsupportedMachineError("no TAP device here")

    monkeypatch.setattr(measurements, "delay", refused)
    measured = measurements.result("bandwidth", [0.03] * 2, rows(measurements.BANDWIDTHS), GRADIENTS)
    monkeypatch.setattr(measurements, "bandwidth", lambda repeats: measured)
    report_path = tmp_path / "kept.json"
    with pytest.raises(SystemExit, match="not measured: delay: no TAP device here"):
        main(["--only", "delay", "--only", "bandwidth", "--json", str(report_path)])
    assert [part["name"] for part in json.loads(report_path.read_text())["comparisons"]] == ["bandwidth"]


@pytest.mark.parametrize("step", ["abc", "0", "inf", "nan"])
def test_a_step_that_is_no_number_above_0_is_refused(step, capsys):
    with pytest.raises(SystemExit):
        main(["--step", step])
    assert f"--step: expected a number above 0, found '{step}'" in capsys.readouterr().err


def test_absorbed_communication_is_explained(capsys):
    seen = StepModel(0.03, GRADIENTS, absorbed=0.01)
    made = [
        {**network._asdict(), "seconds": [seen.seconds(network.observed(0.0).bandwidth)], "sent": [GRADIENTS]}
        for network in measurements.BANDWIDTHS
    ]
    output = printed(table(measurements.result("bandwidth", [0.03], made, GRADIENTS)), capsys)
    assert "10.0 ms absorbed" in output
    assert "absorbed: communication that does not lengthen the step" in output


def test_rates_and_models_are_described_in_words():
    assert [rate(bandwidth) for bandwidth in (None, 1e10, 2.5e8)] == ["no limit", "10 Gbit/s", "250 Mbit/s"]
    assert describe(StepModel(0.0421, 3.9e6)) == "t = 42.1 ms + 3.90 MB / bandwidth"
    output = "t = 42.1 ms + (3.90 MB / bandwidth - 8.0 ms absorbed, at least 0)"
    assert describe(StepModel(0.0421, 3.9e6, absorbed=0.008)) == output
