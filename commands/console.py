"""What is on the console: the run's own messages, and of Lightning's those that are news; for people or programs."""

import logging
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Literal

from lightning.pytorch.utilities.rank_zero import rank_zero_only

from engine.early_lines import EarlyLines
from engine.json_lines import JsonLines

log = logging.getLogger("lockstep")

_OTHERS = ("lightning.pytorch", "lightning.fabric", "py.warnings")
"""Loggers of libraries that write to the console by themselves."""


@dataclass(frozen=True)
class LogSettings:
    """What a run says, and in which form.

    Args:
        console: `text` for people, with a progress bar; `json` for programs that collect what containers print: each line of the first process, and of the others each error, is one JSON object, and there is no bar and no table.
        level: what is less important is not on the console. With `debug`, log.jsonl has such lines too; otherwise it begins with `info`. train.log has all.
    """  # noqa: E501

    console: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


def quiet_lightning() -> None:
    """Drop what Lightning says in every run and nobody can act on."""
    noise = (
        "litlogger",
        "GPU available",
        "TPU available",
        "isinstance(treespec, LeafSpec)",
        "srun` command is available",
        "to estimate number of stepping",
        "sync_dist=True",
        "Couldn't infer the batch indices",  # predictions carry their row themselves
        "Detected call of `lr_scheduler.step()` before",  # in fp16 the scaler may leave the first step out; it counts
    )

    def is_news(record: logging.LogRecord) -> bool:
        return not any(text in record.getMessage() for text in noise)

    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch.trainer.setup", "lightning_utilities"):
        logging.getLogger(name).addFilter(is_news)
    for text in noise:
        warnings.filterwarnings("ignore", message=f".*{re.escape(text)}.*")


def log_to_console(settings: LogSettings = LogSettings(), run: str | None = None) -> None:
    """The run's messages from the first process; errors from all.

    Args:
        settings: of the run's config, once it is known.
        run: its name, then.
    """
    log.setLevel(logging.DEBUG)
    log.propagate = False
    replaced = (logging.StreamHandler,) if run else (logging.StreamHandler, EarlyLines)
    log.handlers = [handler for handler in log.handlers if type(handler) not in replaced]
    if run is None:
        log.addHandler(EarlyLines())
    handler = logging.StreamHandler()
    handler.setLevel(settings.level.upper())
    handler.addFilter(lambda record: record.levelno >= logging.ERROR or rank_zero_only.rank == 0)
    as_json = settings.console == "json"
    handler.setFormatter(JsonLines(run, rank_zero_only.rank) if as_json else logging.Formatter("%(message)s"))
    if as_json:
        handler.addFilter(lambda record: not getattr(record, "said", False))
        logging.captureWarnings(True)
        for name in _OTHERS:
            logging.getLogger(name).handlers = [handler]
            logging.getLogger(name).propagate = False
    else:
        handler.addFilter(lambda record: not getattr(record, "unsaid", False))
        # A step's line is for files; on a screen with a progress bar, which shows the same, it would be in the way.
        handler.addFilter(lambda record: not (getattr(record, "beside_a_bar", False) and sys.stderr.isatty()))
    log.addHandler(handler)
