"""Handles the argument `--local-rank=N`, which `torch.distributed.launch` passes without `--use_env`."""

import logging
import re
from collections.abc import MutableMapping, Sequence

log = logging.getLogger("lockstep")

_ARGUMENT = re.compile(r"--local[-_]rank=(\d+)")


def after_command(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the argument at the end; the launcher puts it before the command."""
    rank_options = [argument for argument in arguments if _ARGUMENT.fullmatch(argument)]
    return [argument for argument in arguments if argument not in rank_options] + rank_options


def without_local_rank(arguments: Sequence[str], environ: MutableMapping[str, str]) -> list[str]:
    """Return a command line without the argument; sets LOCAL_RANK to its value if a launcher has not set it."""
    remaining = []
    for argument in arguments:
        match = _ARGUMENT.fullmatch(argument)
        if match is None:
            remaining.append(argument)
            continue
        rank = environ.setdefault("LOCAL_RANK", match[1])
        log.debug("%s of torch.distributed.launch is dropped: LOCAL_RANK is %s", argument, rank)
    return remaining
