"""Tests the energy of a training, with planted counters."""

import json

import pytest

from callbacks.performance import energy_monitor
from commands.report.page_data import page_content
from engine.telemetry.energy_file import FILE, Joules, read_energy
from tests.conftest import TINY
from tests.support.faults.planted_energy import CPU, GPU, Rising


@pytest.fixture
def counters(monkeypatch):
    cpu, gpu = Rising(CPU), Rising(GPU)
    monkeypatch.setattr(energy_monitor, "cpu_counters", lambda: [cpu])
    monkeypatch.setattr(energy_monitor, "gpu_counters", lambda device: [gpu])
    return cpu, gpu


def test_power_is_logged_by_interval_and_energy_in_total_over_restarts(lockstep, counters):
    options = [
        *TINY,
        "--trainer.log_every_n_steps",
        "2",
        "--trainer.limit_val_batches",
        "0",
        "--data.init_args.batch_size",
        "32",
    ]
    run = lockstep("fit", *options, "--trainer.max_steps", "4", name="a")
    kwh, watts = run.series("train/energy_kwh"), run.series("train/power_watts")
    assert list(kwh) == list(watts) == [2, 4]
    assert all(value > 0 for value in watts.values())
    assert list(kwh.values()) == pytest.approx([85 / 3.6e6, 170 / 3.6e6])
    first = read_energy(run.folder)
    assert first == Joules(3 * CPU, 3 * GPU), "and what was used after the last log"

    # A start that is killed after step 6 and a log; its steps are repeated, and both are counted.
    (run.folder / FILE).write_text(json.dumps({"cpu_joules": 4 * CPU, "gpu_joules": 4 * GPU}))
    run = lockstep("fit", *options, "--trainer.max_steps", "6", "--ckpt_path", "last", name="a")
    assert run.series("train/energy_kwh")[6] == pytest.approx(5 * 85 / 3.6e6)
    assert read_energy(run.folder) == Joules(6 * CPU, 6 * GPU)
    (of_page,) = page_content([run.folder], run.folder / "report.html")["runs"]
    assert of_page["energy"] == {"cpu": 6 * CPU, "gpu": 6 * GPU}


def test_nothing_is_logged_where_there_is_no_counter(lockstep, monkeypatch):
    monkeypatch.setattr(energy_monitor, "cpu_counters", list)
    monkeypatch.setattr(
        energy_monitor.EnergyMonitor, "on_train_batch_end", lambda *_: pytest.fail("it has left the training")
    )
    run = lockstep("fit", *TINY, "--trainer.max_steps", "2", "--trainer.limit_val_batches", "0", name="a")
    assert "train/loss" in (text := (run.folder / "metrics.jsonl").read_text())
    assert "energy" not in text
    assert "watts" not in text
    assert not (run.folder / FILE).exists()
    (of_page,) = page_content([run.folder], run.folder / "report.html")["runs"]
    assert of_page["energy"] is None


def test_long_intervals_are_read_before_a_counter_returns_to_zero(lockstep, counters, monkeypatch):
    monkeypatch.setattr(energy_monitor, "_MAX_READ_INTERVAL", -1.0)
    options = ["--trainer.log_every_n_steps", "4", "--trainer.max_steps", "4", "--trainer.limit_val_batches", "3"]
    run = lockstep("fit", *TINY, *options, "--trainer.val_check_interval", "4", name="a")
    readings = counters[0].readings
    assert readings >= 3 + 1 + 1 + 1, "3 steps, the log, batches of the validation, the end"
    assert read_energy(run.folder) == Joules(readings * CPU, readings * GPU)


MALFORMED = (
    "",
    "{",
    "[]",
    '{"cpu_joules": 1}',
    '{"cpu_joules": -1, "gpu_joules": 0}',
    '{"cpu_joules": NaN, "gpu_joules": 0}',
    '{"cpu_joules": null, "gpu_joules": 0}',
)


@pytest.mark.parametrize("content", MALFORMED)
def test_a_malformed_file_is_no_energy(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    assert read_energy(tmp_path) is None
