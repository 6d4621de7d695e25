"""Checks that no rank trains on prepared data with a flipped bit, and that no rank hangs."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY
from tests.support.families.tiny_temporal import TINY_TEMPORAL


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_two_processes_train_on_the_replaced_store(lockstep, team, tmp_path):
    options = [*TINY, "--trainer.max_steps", "6"]
    alone = lockstep("fit", *options, name="alone")
    (items,) = (tmp_path / "data").rglob("items.npy")
    before = np.load(items)
    flip(items, items.stat().st_size - before.nbytes)
    assert np.load(items)[0] != before[0], "another item"
    assert np.load(items)[0] >= 1, "another item"
    pair = team("fit", *options, name="pair", processes=2).succeeded(120)
    assert np.array_equal(np.load(items), before)
    assert pair.output.count("items.npy is corrupt") == 1, "process 0 replaces it and reports it"
    losses, others = alone.series("train/loss"), pair.series("train/loss")
    assert losses.keys() == others.keys()
    assert max(abs(losses[step] - others[step]) for step in losses) < 1e-5


@pytest.mark.slow
def test_two_processes_refuse_a_corrupt_temporal_cache(lockstep, team, tmp_path, monkeypatch):
    options = [
        *TINY_TEMPORAL,
        "--data.init_args.cached_epochs",
        "1",
        "--data.init_args.fresh_samples",
        "false",
        "--data.init_args.easy_epochs",
        "0",
    ]
    from commands.cli.main import main

    main(["prepare", *options])
    (shard,) = (tmp_path / "data").rglob("train-*.arrow")
    flip(shard, shard.stat().st_size // 2)
    monkeypatch.delenv("LOCKSTEP_DEBUG")
    pair = team("fit", *options, name="pair", processes=2)
    codes = pair.end_cleanly(120)
    assert codes[0] == 2, pair.output
    assert 0 not in codes, pair.output
    assert f"{shard.name} is corrupt" in pair.logs[0]
    assert "Traceback" not in pair.logs[0]
