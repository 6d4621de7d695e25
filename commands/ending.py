"""What a failure says to the user, and the exit code of the process."""

import errno
import logging
import os

from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch.distributed import DistNetworkError, DistStoreError

from commands.processes import agreed_exit
from engine.events import SAID
from engine.faults import AgreedFailure, is_wrong_input
from engine.host_memory import limit, peak_resident
from engine.out_of_memory import is_out_of_memory

log = logging.getLogger("lockstep")

FAILED, WRONG_INPUT = 1, 2


def end_with(error: Exception) -> int:
    """Says why the run ends, unless that has been said; returns the exit code.

    Wrong input gets its message alone, another failure its traceback: the rest is for whoever mends the program.
    """
    told = SAID if getattr(error, "is_logged", False) else {}  # by callbacks.watchdog
    if isinstance(error, AgreedFailure):
        if rank_zero_only.rank == 0:
            log.error("error: %s", error, extra=told)
        return agreed_exit(FAILED, os.environ)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
        log.error("(which device, `df -h` shows; the loader's workers need room in the shared memory, /dev/shm)")
    settled: int | None = getattr(error, "exit_code", None)  # by callbacks.watchdog
    if settled is not None:
        return settled
    if is_out_of_memory(error):  # of what is no step of a run: while the model is made, or an export
        peak = f"{peak_resident() / 2**30:.2f} GiB resident of {limit().size / 2**30:.2f} GiB ({limit().source})"
        log.error("error: out of memory: %s; this process has had %s", error, peak)
        return FAILED
    if is_wrong_input(error):
        log.error("error: %s", error, extra=told)
        log.error("(LOCKSTEP_DEBUG=1 shows where it was raised)")
        return WRONG_INPUT
    if isinstance(error, (DistNetworkError, DistStoreError)):  # once they are connected, engine.watch knows more
        log.error(
            "error: the processes did not connect, the first one has ended or cannot be reached; it has said why if it "
            "has ended (%s)",
            str(error).splitlines()[0],
        )
        return FAILED
    log.error("error: %s", error, exc_info=error)
    return FAILED
