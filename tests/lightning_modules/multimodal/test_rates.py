"""Tests that the learning rate of each part reaches the optimizer and the table, scaled to the batch size."""

import pytest

from tests.support.families.tiny_temporal import TINY_TEMPORAL


def test_rates_of_parts_are_scaled_too(lockstep, capsys):
    options = [
        *TINY_TEMPORAL,
        "--model.init_args.learning_rate=0.001",
        "--model.init_args.learning_rates={projector: 0.004}",
        "--model.init_args.lr_scaling=linear",
        "--model.init_args.base_batch_size=8",
        "--model.init_args.warmup_steps=0",
        "--trainer.max_steps=1",
        "--trainer.limit_val_batches=0",
    ]
    run = lockstep("fit", *options, name="rates")
    assert run.series("train/learning_rate") == {1: pytest.approx(0.002)}  # of the encoder, at a batch of 16
    # Results are printed on stdout, the run's log on stderr.
    rows = [line.split("│") for line in capsys.readouterr().err.splitlines() if "│" in line]
    rates = {row[1].strip(): row[5].strip() for row in rows}
    assert rates == {"encoder": "0.002", "projector": "0.008", "language_model": "0.002", "all": ""}
