"""Sets devices and strategy of the config as the launcher and the options of `ddp` require."""

import logging
import os
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry

from commands.cli.arguments import DebugLevel
from commands.launch.accelerate import ignored_options
from commands.launch.launched_processes import LaunchedProcesses, device_count, match_launched
from engine.system.cpu_count import available_cpus

log = logging.getLogger("lockstep")

_FEW_PROCESSES, _PROCESSES_PER_CORE = 16, 4
"""Processes that any machine may start on its CPU, and processes for each core; the larger limit counts."""

_CLASS = f"{DDPStrategy.__module__}.{DDPStrategy.__qualname__}"


def adapt_to_launch(config: Namespace, command: str, launched: LaunchedProcesses | None) -> None:
    """Set the devices and the strategy of a config as the launcher, `ddp` and the command require.

    Args:
        config: settings of the command.
        command: its name.
        launched: ranks that a launcher started.

    Raises:
        ValueError: the config contradicts the launcher or itself.
    """
    trainer = config.trainer
    on_accelerator = trainer.accelerator != "cpu" and torch.accelerator.is_available()
    for warning in ignored_options(os.environ, trainer.precision, on_accelerator):
        log.warning("%s", warning)
    trainer.devices, trainer.num_nodes = match_launched(trainer.devices, trainer.num_nodes, launched)
    if launched is None and not on_accelerator:
        _require_cores(device_count(trainer.devices) or 1)
    if command == "fit":
        processes = process_count(trainer.devices, trainer.num_nodes, on_accelerator)
        trainer.strategy = with_ddp_settings(trainer.strategy, config.ddp, processes)
    several = launched is not None or trainer.devices not in (1, "1", "auto")
    set_distributed_debug(config.distributed_debug, over_gloo=several and not on_accelerator)
    if command == "export":  # converts files, in one process on a CPU
        trainer.update(Namespace(accelerator="cpu", devices=1, num_nodes=1, strategy="auto"))
    elif command in ("demo", "chat"):  # answer one question at a time
        trainer.update(Namespace(devices=1, num_nodes=1, strategy="auto"))


def set_distributed_debug(level: DebugLevel | None, over_gloo: bool) -> None:
    """Set TORCH_DISTRIBUTED_DEBUG for this process and its children, as `--distributed_debug` requests.

    Args:
        level: None leaves the variable as it is.
        over_gloo: whether several ranks train on CPUs. There DETAIL becomes INFO: with DETAIL the constructor of
            PyTorch's DDP (2.13) ends with a segmentation fault.
    """
    if level is None or not torch.distributed.is_available():
        return
    if level == "DETAIL" and over_gloo:
        level = "INFO"
    log.warning("deprecated: distributed_debug is now the environment variable TORCH_DISTRIBUTED_DEBUG=%s", level)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
    torch.distributed.set_debug_level_from_env()  # torch has read the variable at its import


def with_ddp_settings(strategy: object, ddp: Namespace, processes: int) -> Any:
    """Return `trainer.strategy` with the bucket size of `ddp`.

    A strategy that is not DDP is returned as it is; DDPOptions refuses it.

    Args:
        strategy: a name, or a class with its arguments; DDPStrategy has the arguments of DistributedDataParallel.
        ddp: the options of DDPOptions.
        processes: of the run. One process does not use DDP.

    Raises:
        ValueError: both set the same.
    """
    bucket, compression = ddp.get("bucket_mb"), ddp.get("compression")
    if processes == 1 or not (bucket or compression):
        return strategy
    if isinstance(strategy, str):
        arguments = _arguments(strategy)
        if arguments is None or bucket is None:
            return strategy
        return Namespace(class_path=_CLASS, init_args=Namespace(**arguments, bucket_cap_mb=bucket))
    if not isinstance(strategy, Namespace) or strategy.get("class_path", "").rpartition(".")[2] != "DDPStrategy":
        return strategy
    init_args = strategy.get("init_args") or Namespace()
    # The parser fills in all arguments of DDP, most of them with None.
    for name, value in (("bucket_cap_mb", bucket), ("ddp_comm_hook", compression)):
        if value is not None and init_args.get(name) not in (None, value):
            raise ValueError(
                f"ddp sets {name} to {value} and trainer.strategy to {init_args.get(name)}: remove one of them"
            )
    if bucket is None:
        return strategy
    arguments = {**vars(init_args), "bucket_cap_mb": bucket}
    return Namespace(class_path=strategy.class_path, init_args=Namespace(**arguments))


def process_count(devices: str | int | list[int], num_nodes: int, on_accelerator: bool) -> int:
    """Return the number of processes of a run, from `trainer.devices` and `trainer.num_nodes`."""
    count = device_count(devices)
    if count is None:
        count = torch.accelerator.device_count() if on_accelerator else 1
    return num_nodes * count


def _require_cores(processes: int) -> None:
    """Raise ValueError at a number of processes that would exhaust the memory and the cores of this machine."""
    cores = available_cpus()
    max_processes = max(_FEW_PROCESSES, int(_PROCESSES_PER_CORE * cores))
    if processes > max_processes:
        raise ValueError(
            f"trainer.devices {processes} starts {processes} processes on this machine, which has {cores:g} cores and "
            f"no accelerator; expected at most {max_processes}"
        )


def _arguments(name: str) -> dict[str, Any] | None:
    """Return the arguments of DDPStrategy under a name of Lightning; None if the name is another strategy's."""
    name = "ddp" if name == "auto" else name
    if name not in StrategyRegistry or StrategyRegistry[name]["strategy"] is not DDPStrategy:
        return None
    return dict(StrategyRegistry[name]["init_params"])
