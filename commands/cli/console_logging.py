"""Prints the run's messages and selected messages of Lightning to the console, as text or as JSON."""

import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from engine.lightning_internals.processes import process_rank
from engine.telemetry.json_formatter import JsonFormatter
from engine.telemetry.startup_log_buffer import StartupLogBuffer

log = logging.getLogger("lockstep")

_LIBRARIES = ("lightning.pytorch", "lightning.fabric", "py.warnings")
"""Loggers of libraries that have console handlers of their own."""


@dataclass(frozen=True)
class LogSettings:
    """Form and level of the console output.

    Args:
        console: `text` with a progress bar; `json` for log collectors: each line of rank 0, and each error of the other
            ranks, is one JSON object, without bar and tables.
        level: lowest level on the console. log.jsonl has levels from `info`, with `debug` all; train.log always has
            all.
    """

    console: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


def filter_lightning_noise() -> None:
    """Drop messages that Lightning logs in every run and that require no action."""
    noise = (
        "litlogger",
        "GPU available",
        "TPU available",
        "isinstance(treespec, LeafSpec)",
        "srun` command is available",
        "to estimate number of stepping",
        "sync_dist=True",
        "is smaller than the logging interval",  # counts batches of an epoch; RunLog warns if nothing is logged
        "Couldn't infer the batch indices",  # predictions contain their row
        "Detected call of `lr_scheduler.step()` before",  # in fp16 the scaler may skip the first step
    )

    def is_relevant(record: logging.LogRecord) -> bool:
        return not any(text in record.getMessage() for text in noise)

    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch.trainer.setup", "lightning_utilities"):
        logging.getLogger(name).addFilter(is_relevant)
    for text in noise:
        warnings.filterwarnings("ignore", message=f".*{re.escape(text)}.*")


class RankFormatter(logging.Formatter):
    """Formats a record as its message, after `WARNING: ` for a warning, and `[rank 3, local rank 1]` on other ranks."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text, rank = super().format(record), process_rank()
        if record.levelno == logging.WARNING:
            text = f"WARNING: {text}"
        if rank == 0:
            return text
        local = _local_rank()
        return f"[rank {rank}{'' if local is None else f', local rank {local}'}] {text}"


def _local_rank() -> int | None:
    """Return the rank on this machine, which the launcher has set; None if it has set none."""
    local = os.environ.get("LOCAL_RANK") or os.environ.get("SLURM_LOCALID")
    return int(local) if local is not None and local.isdigit() else None


def log_to_console(settings: LogSettings = LogSettings(), run: str | None = None) -> None:
    """Log messages of rank 0, and errors of all ranks, to the console.

    Args:
        settings: settings of the config; defaults until it is parsed.
        run: name of the run; None until it is selected.
    """
    log.setLevel(logging.DEBUG)
    log.propagate = False
    replaced = (logging.StreamHandler,) if run else (logging.StreamHandler, StartupLogBuffer)
    # Exactly these types: the handlers of files are subclasses of StreamHandler and stay.
    log.handlers = [handler for handler in log.handlers if type(handler) not in replaced]
    if run is None:
        log.addHandler(StartupLogBuffer())
    handler = logging.StreamHandler()
    handler.setLevel(settings.level.upper())
    handler.addFilter(lambda record: record.levelno >= logging.ERROR or process_rank() == 0)
    as_json = settings.console == "json"
    if as_json:
        handler.setFormatter(JsonFormatter(run, process_rank(), local_rank=_local_rank()))
    else:
        handler.setFormatter(RankFormatter("%(message)s"))
    if as_json:
        handler.addFilter(lambda record: not getattr(record, "already_shown", False))
        # Warnings become records of the logger `py.warnings`, so they are lines of JSON, too.
        logging.captureWarnings(True)
        for name in _LIBRARIES:
            logging.getLogger(name).handlers = [handler]
            logging.getLogger(name).propagate = False
    else:
        handler.addFilter(lambda record: not getattr(record, "hidden_on_console", False))
        # A progress bar shows the same values as the line of a step.
        handler.addFilter(lambda record: not (getattr(record, "progress_bar_visible", False) and sys.stderr.isatty()))
    log.addHandler(handler)
