"""Runs the benchmark at small sizes and checks the printed rows."""

from benchmarks.temporal import samples
from tests.benchmarks.conftest import printed


def test_the_share_of_samples_in_a_step_is_measured_and_printed(monkeypatch):
    monkeypatch.setattr(samples, "_SAMPLES", 32)
    monkeypatch.setattr(samples, "_quickstart", lambda: (200.0, 0.01))  # the training itself takes half a minute
    measured = samples.measure(2)
    assert all(len(turns) == 2 and min(turns) > 0 for turns in measured.values())
    assert measured["share"] == [tiny * 32 / 200.0 for tiny in measured["tiny"]]
    text = printed(samples.table(measured))
    assert "200 ms" in text
    assert "1.00%" in text
    assert len(text.splitlines()) == 5 + len(measured)
