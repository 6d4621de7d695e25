"""A training is measured with what its variant states, and the table has a line for each condition."""

import pytest
from rich.console import Console

from benchmarks.threads.trainings import (
    BUSY,
    CONFIGS,
    DEFAULT,
    IDLE,
    _goals,
    table,
    train,
    variants,
    with_background_load,
)


@pytest.mark.slow
def test_a_training_is_measured_beside_a_busy_process(tmp_path):
    with with_background_load(BUSY):
        found = train(CONFIGS["digits"], variants()[DEFAULT], tmp_path, seconds=0.1, warm_up=1)
    assert found.samples_per_second > 0
    assert found.threads >= 1
    rows = [
        {"training": "digits", "condition": condition, "side": DEFAULT, "rates": [rate], "threads": [found.threads]}
        for condition, rate in ((IDLE, 900.0), (BUSY, 600.0))
    ]
    console = Console(width=160, record=True)
    console.print(table({"rows": rows, "goals": _goals(rows)}))
    text = " ".join(console.export_text().split())
    assert "samples/s by default, on two cores: met (900)" in text
    assert "missed (600)" in text
