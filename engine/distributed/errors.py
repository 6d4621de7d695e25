"""Classifies the errors that end a run."""

import errno

import torch.distributed
from lightning.fabric.utilities.exceptions import MisconfigurationException


class CollectiveError(RuntimeError):
    """An error that every rank raises at the same step. Rank 0 reports it, and all ranks exit with code 1."""

    is_logged = False
    """Whether a log record of an event contains this error already."""


class CollectiveInputError(CollectiveError):
    """A collective error that the input causes, so that a restart would meet it again. All ranks exit with code 2."""


class MismatchError(ValueError):
    """A checkpoint does not belong to the model or the optimizer."""


def is_user_error(error: BaseException) -> bool:
    """Return whether an error before training most likely comes from the user's input.

    Its message then suffices, without a traceback. A full disk is not a user error.
    """
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, (ValueError, OSError, MisconfigurationException)) and not full


def is_full_disk(error: BaseException) -> bool:
    """Return whether a file could not be written because its file system has no space, inode or quota left.

    Its message then suffices, without a traceback.
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is not None


def is_peer_failure(error: BaseException) -> bool:
    """Return whether an error only reports that another rank has died or does not respond."""
    # The class is missing in builds of torch without torch.distributed.
    if isinstance(error, getattr(torch.distributed, "DistError", ())):
        return True
    # Errors of collectives are plain RuntimeErrors in some backends.
    signs = ("gloo/", "[Rank ", "NCCL", "ProcessGroup", "Broken pipe", "Connection reset by peer")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
