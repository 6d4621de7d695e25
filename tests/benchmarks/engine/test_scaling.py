"""The peers of the scaling benchmark train what ours trains, on one process and on two."""

import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks.engine.baselines import by_hand, with_accelerate
from benchmarks.engine.interleaving import Measurement
from benchmarks.engine.scaling import result_of, table

STEPS, BATCH = 3, 8
PEERS = {"by hand": by_hand, "Accelerate": with_accelerate}


def written(path, lengths):
    random = np.random.default_rng(0)
    items = [random.permutation(300)[:length] + 1 for length in lengths]
    lines = [f"{user},{item},{time}" for user, own in enumerate(items) for time, item in enumerate(own)]
    path.write_text("user_id,item_id,timestamp\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def interactions(tmp_path):
    """Three batches, none of them short, of histories shorter and longer than the model looks back."""
    return written(tmp_path / "interactions.csv", [210, 40, 120, 250, 75, 203, 60, 299] * 3)


@pytest.fixture
def full_rows(tmp_path):
    """Every row has as many terms, so a mean of the processes' means is the mean."""
    return written(tmp_path / "full_rows.csv", [210] * 24)


@pytest.fixture
def ours(lockstep, interactions):
    config = Path(__file__).resolve().parents[3] / "configs/recommender/sasrec.yaml"
    settings = {
        "data.init_args.dataset": "files",
        "data.init_args.root": interactions,
        "data.init_args.batch_size": BATCH,
        "model.init_args.lr_scaling": "none",
        "model.init_args.schedule": "constant",
        "model.init_args.dropout": 0,
        "model.init_args.baselines": "false",
        "trainer.max_steps": STEPS,
        "trainer.log_every_n_steps": 1,
        "trainer.accelerator": "cpu",
        "trainer.limit_val_batches": 0,
        "trainer.enable_progress_bar": "false",
    }
    options = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    series = lockstep("fit", "--config", str(config), *options, name="ours").series("train/loss")
    return [series[step] for step in sorted(series)]


def losses_of(peer, interactions):
    return list(islice(PEERS[peer](interactions, batch_size=BATCH, dropout=0.0), STEPS))


def member(peer, interactions, rank, port, results):
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "OMP_NUM_THREADS": "1",
    }
    results.put(losses_of(peer, interactions))


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_has_the_losses_of_ours(peer, ours, interactions):
    np.testing.assert_allclose(losses_of(peer, interactions), ours, rtol=2e-5)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("peer", PEERS)
def test_a_comparison_loop_on_two_ranks_has_the_losses_of_one(peer, full_rows, server):
    """Ours has the same on two as on one: tests/distributed/exactness/test_exactness.py."""
    alone = losses_of(peer, full_rows)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results = server.Queue()
    both = [server.Process(target=member, args=(peer, full_rows, rank, store.port, results)) for rank in range(2)]
    try:
        for process in both:
            process.start()
        shares = [results.get(timeout=240) for _ in both]
    finally:
        for process in both:
            process.join(30)
            process.kill()
    np.testing.assert_allclose(np.mean(shares, axis=0), alone, rtol=2e-5)


def test_ratios_are_taken_within_a_turn(capsys):
    ways, numbers = ("ours", "torch DDP loop by hand", "Accelerate"), ("1 process", "2 processes")
    names = [f"{way}, {number}" for way in ways for number in numbers]
    turns = {name: [Measurement(1.0, 2.0), Measurement(2.0, 4.0)] for name in names}
    turns["two runs of ours (machine's limit)"] = [Measurement(1.0, 1.0), Measurement(2.0, 2.0)]
    turns["ours, 2 processes"] = [Measurement(1.0, 1.0), Measurement(2.0, 2.5)]
    turns["Accelerate, 1 process"] = [Measurement(3.0, 6.0), Measurement(4.0, 8.0)]
    result = result_of(turns)
    variants = {variant["name"]: variant for variant in result["sides"]}
    assert variants["ours, 2 processes"]["times_as_fast_as_alone"] == [2.0, 1.6]
    assert variants["Accelerate, 1 process"]["ours_per_cpu_second"] == [3.0, 2.0]
    assert variants["Accelerate, 2 processes"]["times_as_fast_as_alone"] == [3.0, 2.0]
    assert variants["ours, 1 process"]["samples_per_second"] == [64.0, 32.0]
    assert result["goals"][0]["found"] == 1.8
    assert not result["goals"][0]["met"]
    Console(width=140).print(table(result))
    printed = capsys.readouterr().out
    assert [name for name in turns if name not in printed] == []
    assert "missed" in printed
