"""`--distributed_debug DETAIL`: TORCH_DISTRIBUTED_DEBUG of all processes of a run, from its config."""

import os
from typing import Literal

import torch

Level = Literal["OFF", "INFO", "DETAIL"]

HELP = (
    "What PyTorch checks and tells of the processes' collectives. DETAIL compares each before it begins, so that one "
    "in which the processes differ (another operation, another shape) is an error that says so and no hang; slow. "
    "Default: what TORCH_DISTRIBUTED_DEBUG says."
)


def set_level(level: Level | None) -> None:
    """For this process and those that it starts; None leaves what the environment says."""
    if level is None or not torch.distributed.is_available():
        return
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
    torch.distributed.set_debug_level_from_env()  # it was read with the import of torch
