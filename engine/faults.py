"""How a run ends when it cannot go on."""

import errno

import torch.distributed
from lightning.fabric.utilities.exceptions import MisconfigurationException


class AgreedFailure(RuntimeError):
    """Raised by every process at the same step and for the same reason; the first one says why, all exit with 1."""

    is_logged = False
    """Whether a line of the log has told of it as an event."""


def is_wrong_input(error: BaseException) -> bool:
    """Whether an error nearly always comes from what the user gave, so that its message says all; before training."""
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return isinstance(error, (ValueError, OSError, MisconfigurationException)) and not full


def is_consequence(error: BaseException) -> bool:
    """Whether an error only says that another process is gone or does not answer: the cause lies there."""
    if isinstance(error, getattr(torch.distributed, "DistError", ())):
        return True
    signs = ("gloo/", "[Rank ", "NCCL", "ProcessGroup", "Broken pipe", "Connection reset by peer")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
