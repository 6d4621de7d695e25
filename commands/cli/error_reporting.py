"""Reports failures and sets the exit code of the process."""

import errno
import logging
import os
from collections.abc import Mapping, MutableMapping, Sequence

from torch.distributed import DistNetworkError, DistStoreError

from commands.cli.configs.config_files import locate_setting_error
from engine.distributed.errors import CollectiveError, CollectiveInputError, is_full_disk, is_user_error
from engine.health.exit_codes import ExitCode
from engine.io.error_line import first_line
from engine.lightning_internals.processes import process_rank
from engine.system.byte_size import format_gib
from engine.system.extras import MissingPackagesError, explain_import_error
from engine.system.host_memory import memory_limit, peak_resident_memory
from engine.system.oom import is_oom_error
from engine.telemetry.log_events import ALREADY_SHOWN

log = logging.getLogger("lockstep")

_STARTED_BY = "LOCKSTEP_STARTED_BY"
"""Variable with the process id of rank 0, which Lightning's subprocess launcher passes on to its children."""


def report_error(error: Exception, arguments: Sequence[str] = ()) -> int:
    """Log why the run ends, unless it is logged already; return the exit code.

    An error in the input is logged without a traceback, which would not help the user, and with the file and line of
    the setting that it names. Other errors have a traceback.

    Args:
        error: what ends the run.
        arguments: command line.
    """
    extra = ALREADY_SHOWN if getattr(error, "is_logged", False) else {}  # by callbacks.health.watchdog
    if isinstance(error, CollectiveError):
        if process_rank() == 0:
            log.error("error: %s", error, extra=extra)
        is_input = isinstance(error, CollectiveInputError)
        return exit_code_for_rank(ExitCode.USER_ERROR if is_input else ExitCode.FAILED, os.environ)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
        log.error("(`df -h` shows which device is full; loader workers need space in shared memory, /dev/shm)")
    exit_code: int | None = getattr(error, "exit_code", None)  # by callbacks.health.watchdog
    if exit_code is not None:
        return exit_code
    if is_oom_error(error):  # outside a step: while the model is created, or in an export
        limit = memory_limit()
        peak = f"{format_gib(peak_resident_memory())} resident of {format_gib(limit.size)} ({limit.source})"
        log.error("error: out of memory: %s; peak of this process: %s", error, peak)
        return ExitCode.FAILED
    if isinstance(missing := explain_import_error(error), MissingPackagesError):  # a traceback would not help
        log.error("error: %s", missing, extra=extra)
        return ExitCode.USER_ERROR
    if is_user_error(error):
        log.error("error: %s%s", locate_setting_error(str(error), arguments), error, extra=extra)
        log.error("(LOCKSTEP_DEBUG=1 shows where it was raised)")
        return ExitCode.USER_ERROR
    if is_full_disk(error):
        log.error("error: %s (`df -h` and `df -i` show what is full)", error, extra=extra)
        return ExitCode.FAILED
    # Once the ranks are connected, engine.health.process_monitor reports such errors.
    if isinstance(error, (DistNetworkError, DistStoreError)):
        log.error(
            "error: the ranks did not connect: rank 0 has ended, and its log has the reason, or cannot be reached (%s)",
            first_line(error),
        )
        return ExitCode.FAILED
    log.error("error: %s", error, exc_info=error)
    return ExitCode.FAILED


def mark_parent(environ: MutableMapping[str, str]) -> None:
    """Record the id of this process for the ranks that Lightning starts from it."""
    if "LOCAL_RANK" not in environ:
        environ[_STARTED_BY] = str(os.getpid())


def exit_code_for_rank(code: int, environ: Mapping[str, str]) -> int:
    """Return the exit code of this rank for an end that all ranks agreed on.

    Ranks that Lightning started return 0: with another code Lightning kills rank 0 before it has ended.
    """
    return 0 if environ.get(_STARTED_BY) == str(os.getppid()) else code
