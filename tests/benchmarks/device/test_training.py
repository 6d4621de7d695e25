"""The Trainer beside a plain loop: compared in float64 first, then in turns of processes of their own."""

import pytest

from benchmarks.device import training
from benchmarks.device.part import Setting


@pytest.mark.timeout(600)  # two processes import Lightning and transformers anew
def test_both_loops_have_the_same_loss_and_are_measured(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    setting = Setting("cpu", tiny=True, repeats=1, compiled=False, peak_tflops=1.0)
    checks, sheet = training.figures(setting)
    assert [check.passed for check in checks] == [True, True]
    assert [row.name for row in sheet.rows] == ["plain torch loop", "Lockstep"]
    for row in sheet.rows:
        figures = dict(zip(sheet.headings, row.cells, strict=True))
        assert figures["tokens/s"][0] > 0 and figures["MFU"] == pytest.approx(figures["TFLOP/s"])


def test_another_loss_is_seen(monkeypatch):
    plain = training.PlainLlava.forward

    def doubled(*arguments):
        return {"loss": 2 * plain(*arguments)["loss"]}

    monkeypatch.setattr(training.PlainLlava, "forward", doubled)
    checks = next(training.figures(Setting("cpu", tiny=True, repeats=1, compiled=False)))
    assert [round(check.error, 3) for check in checks] == [0.5, 0.5] and not any(check.passed for check in checks)
