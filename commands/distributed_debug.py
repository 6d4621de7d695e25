"""`--distributed_debug DETAIL`: TORCH_DISTRIBUTED_DEBUG of all processes of a run, from its config."""

import logging
import os
from typing import Literal

import torch

log = logging.getLogger("lockstep")

Level = Literal["OFF", "INFO", "DETAIL"]

HELP = (
    "What PyTorch checks and tells of the processes' collectives. INFO names parameters without a gradient; DETAIL "
    "also compares each collective before it begins, so that one in which the processes differ (another operation, "
    "another shape) is an error that says so and no hang; slow. Default: what TORCH_DISTRIBUTED_DEBUG says."
)


def set_level(level: Level | None, over_gloo: bool) -> None:
    """For this process and those that it starts; None takes what the environment says.

    Over gloo DETAIL becomes INFO: the constructor of PyTorch's DDP (2.13) takes the group that compares for gloo's own
    and ends the process with a segmentation fault.

    Args:
        over_gloo: whether several processes on CPUs are to train together.
    """
    wanted = level or os.environ.get("TORCH_DISTRIBUTED_DEBUG")
    if wanted is None or not torch.distributed.is_available():
        return
    if wanted.upper() == "DETAIL" and over_gloo:
        wanted = "INFO"
        log.info("distributed_debug: INFO instead of DETAIL, with which PyTorch's DDP crashes on CPUs")
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = wanted
    torch.distributed.set_debug_level_from_env()  # it was read with the import of torch
