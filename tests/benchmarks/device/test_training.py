"""Compares the Trainer with a plain loop: in float64 first, then in alternating processes."""

import pytest

from benchmarks.device import training
from benchmarks.device.part import Setting

PLAIN, OURS = "plain torch loop", "Lockstep's module in the Trainer"


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_both_loops_have_the_same_loss_and_are_measured(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    setting = Setting("cpu", tiny=True, repeats=1, compiled=False, peak_tflops=1.0)
    checks, sheet = training.measure(setting)
    assert all(check.passed for check in checks)
    assert [check.name for check in checks[::2]] == [f"{PLAIN} in bf16", f"{OURS} in bf16", f"{OURS} in fp32"]
    assert [row.name for row in sheet.rows] == [PLAIN, OURS]
    for row in sheet.rows:
        cells = dict(zip(sheet.headings, row.cells, strict=True))
        assert cells["tokens/s"][0] > 0
        assert cells["MFU"] == pytest.approx(cells["TFLOP/s"])


def test_another_loss_is_seen(monkeypatch):
    plain = training.PlainLlava.forward

    def doubled(*arguments):
        return {"loss": 2 * plain(*arguments)["loss"]}

    monkeypatch.setattr(training.PlainLlava, "forward", doubled)
    checks = next(training.measure(Setting("cpu", tiny=True, repeats=1, compiled=False)))
    errors = {check.name: round(check.error, 2) for check in checks if not check.passed}
    same = [f"{OURS} in {format}{what}" for format in ("bf16", "fp32") for what in ("", ", gradients")]
    assert errors == dict.fromkeys(same, 0.5)
