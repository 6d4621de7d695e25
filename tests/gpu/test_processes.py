"""Tests collectives on one GPU: NCCL with one process, gloo with two, shards with one."""

import json
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from tests.conftest import TINY
from tests.support.device.optional_packages import needs
from tests.support.device.options import DETERMINISTIC, on, quiet
from tests.support.families.tiny_temporal import TINY_TEMPORAL

GLOO = [
    "--trainer.strategy",
    "lightning.pytorch.strategies.DDPStrategy",
    "--trainer.strategy.init_args.process_group_backend",
    "gloo",
]
TWO_NODES = ["--trainer.num_nodes", "2"]  # of one process each, which share the GPU
ROUNDING = 1e-5
"""Largest relative difference of losses whose sums are in another order."""


class Group(Callback):
    """Writes the backend of the run's process group and the device of its weights into group.json."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            device = next(pl_module.parameters()).device
            found = {"backend": torch.distributed.get_backend(), "device": device.type, "ranks": trainer.world_size}
            (Path(trainer.default_root_dir) / "group.json").write_text(json.dumps(found))


def group(run):
    return json.loads((run.folder / "group.json").read_text())


def options(device):
    return [
        *TINY,
        *on(device),
        *quiet(5),
        *DETERMINISTIC,
        "--trainer.limit_val_batches",
        "2",
        "--trainer.callbacks+=tests.gpu.test_processes.Group",
        "--replica_consistency.every_n_steps",
        "1",
    ]


def test_two_processes_on_one_device_train_as_one(device, workplace):
    """NCCL refuses two ranks on a GPU, so the two are connected by gloo."""
    alone = workplace.run("fit", *options(device), name="alone")
    assert group(alone) == {"backend": "nccl" if device == "cuda" else "gloo", "device": device, "ranks": 1}
    two = workplace.run("fit", *options(device), *GLOO, *TWO_NODES, name="two", codes=[0, 0], node_size=1)
    assert group(two) == {"backend": "gloo", "device": device, "ranks": 2}
    assert "2 ranks x 8 samples" in two.output
    for metric in ("train/loss", "train/gradient_norm", "val/ndcg@10"):
        ours, theirs = two.series(metric), alone.series(metric)
        assert ours
        assert ours == pytest.approx(theirs, rel=ROUNDING)


def sharded(device, cpu_offload):
    """Return the options of FSDP with one process: whole weights and optimizer state in one shard."""
    on_cpu = ["--trainer.strategy.class_path", "tests.support.ranks.sharded_on_cpu.ShardedOnCPU"]
    offload = ["--trainer.strategy.init_args.cpu_offload", str(cpu_offload).lower()]
    return [*([] if device == "cuda" else on_cpu), *offload]


@needs("language")
@pytest.mark.slow
@pytest.mark.parametrize("cpu_offload", [False, True])
def test_shards_of_one_process_train_as_a_whole_model_and_resume(device, workplace, record_property, cpu_offload):
    """The losses are those without shards, also after the run has resumed from its folder of shards."""
    common = [*TINY_TEMPORAL, "--trainer.limit_val_batches", "0", *DETERMINISTIC]
    plain = workplace.run("fit", *common, *on(device, "bf16-mixed"), *quiet(6), name="plain")
    shards = [*common, *on(device, "bf16-mixed", "fsdp"), *sharded(device, cpu_offload)]
    stopped = workplace.run("fit", *shards, *quiet(3), name="shards")
    assert (stopped.folder / "checkpoints/last.ckpt").is_dir()
    run = workplace.run("fit", *shards, *quiet(6), "--ckpt_path", "last", name="shards")
    ours, theirs = run.series("train/loss"), plain.series("train/loss")
    away = max(abs(ours[step] / theirs[step] - 1) for step in theirs)
    record_property("away_from_ddp", away)
    assert ours.keys() == theirs.keys()
    assert away < 0.02
