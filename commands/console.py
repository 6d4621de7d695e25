"""What people see on the console: the run's own messages, and of Lightning's those that are news."""

import logging
import re
import sys
import warnings

from lightning.pytorch.utilities.rank_zero import rank_zero_only

log = logging.getLogger("lockstep")


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


def log_to_console() -> None:
    """The run's messages from the first process; errors from all."""
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.handlers = [handler for handler in log.handlers if type(handler) is not logging.StreamHandler]
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    handler.addFilter(lambda record: record.levelno >= logging.ERROR or rank_zero_only.rank == 0)
    # A step's line is for files; on a screen with a progress bar, which shows the same figures, it would be in the way.
    handler.addFilter(lambda record: not (getattr(record, "beside_a_bar", False) and sys.stderr.isatty()))
    handler.addFilter(lambda record: not getattr(record, "unsaid", False))
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
