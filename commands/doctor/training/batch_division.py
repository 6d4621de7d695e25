"""Divides the global batch of a config by the ranks that are to be started."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.training.load_config import ranks_of_group
from commands.launch.launched_processes import launched_processes, match_launched
from engine.data.batch_plan import BatchPlan

if TYPE_CHECKING:
    from jsonargparse import Namespace


class BatchDivision(NamedTuple):
    """How the batch divides."""

    finding: Finding
    batch: BatchPlan | None = None  # None: it does not divide
    per_node: int = 1  # ranks of a node


def divide_batch(config: "Namespace", plan: LaunchPlan, environ: Mapping[str, str]) -> BatchDivision:
    """Divide the batch.

    Args:
        config: config of a training.
        plan: ranks to be started, if no launcher has started them.
        environ: environment variables, of which a launcher sets some.
    """
    trainer = config.trainer
    try:
        launched = launched_processes(environ)
        match_launched(trainer.devices, trainer.num_nodes, launched)
    except ValueError as error:
        remedy = "--trainer.devices auto --trainer.num_nodes NODES"
        return BatchDivision(Finding("batch", "fail", str(error), "training will fail at startup", remedy))
    devices = torch.cuda.device_count() if trainer.accelerator != "cpu" else 0
    per_node = launched.per_node if launched else plan.processes(devices or 1)
    world_size = per_node * (launched.nodes if launched else plan.nodes or 1)
    data_args = config.data.init_args
    sizes = {key: data_args.get(key) for key in ("batch_size", "batch_size_per_device", "micro_batch_size")}
    try:
        group_size = ranks_of_group(trainer.strategy)
        batch = BatchPlan.derive(world_size=world_size // group_size or 1, group_size=group_size, **sizes)
    except ValueError as error:
        remedy = "--data.init_args.batch_size N or --data.init_args.micro_batch_size N"
        why = "training will fail at startup with this world size"
        return BatchDivision(Finding("batch", "fail", str(error), why, remedy))
    return BatchDivision(Finding("batch", "ok", str(batch)), batch, per_node)
