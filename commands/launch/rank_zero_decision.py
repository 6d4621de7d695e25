"""Shares a decision of rank 0 with all ranks, before there is a process group.

The name of a new run and the newest checkpoint depend on the clock and on files. If each rank determined them, ranks
could silently get different answers.
"""

import os
from collections.abc import Callable, MutableMapping

from commands.launch.launched_processes import rendezvous_from_env
from commands.launch.rendezvous_store import RendezvousStore

_VARIABLE = "LOCKSTEP_AGREED_"


def decide_on_rank_zero(
    key: str, compute: Callable[[], str], environ: MutableMapping[str, str] | None = None, keep: bool = False
) -> str:
    """Return what rank 0 computes, on every rank.

    Separately started ranks get it from the launcher's store, ranks that Lightning starts from an environment variable.

    Args:
        key: key of the decision.
        compute: called on rank 0 alone.
        environ: variables of the launcher; default: `os.environ`.
        keep: whether a restart by torchrun gets the result of the first start.

    Raises:
        ValueError: `compute` raised on rank 0, or the ranks cannot connect.
    """
    environ = os.environ if environ is None else environ
    rendezvous = rendezvous_from_env(environ)
    if rendezvous is not None:
        return compute() if rendezvous.processes == 1 else RendezvousStore(rendezvous).decide(key, compute, keep)
    variable = _VARIABLE + key.upper()
    if environ.get("LOCAL_RANK", "0") != "0" and variable in environ:
        return environ[variable]
    if int(environ.get("WORLD_SIZE", "1")) > 1 and variable not in environ:
        raise ValueError(
            f"WORLD_SIZE is {environ['WORLD_SIZE']}, but RANK is not set: give every process RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT (and LOCAL_RANK with several on a machine), or use torchrun or srun"
        )
    environ[variable] = compute()
    return environ[variable]
