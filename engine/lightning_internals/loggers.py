"""Gives public names to private members of Lightning's loggers and profilers."""

from collections.abc import Callable, Mapping
from typing import Any

from lightning.fabric.loggers.logger import _DummyExperiment
from lightning.fabric.utilities.logger import _flatten_dict
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.profilers import PyTorchProfiler

NullExperiment = _DummyExperiment
"""Experiment that ignores every call, which loggers return on ranks that write nothing. Lightning gives it no public
name."""

flatten_config = _flatten_dict
"""Flattens nested hyper-parameters as Lightning's own loggers do, so that names agree. It has no public name."""


def replace_event_file(summary_writer: Any, open_file: Callable[[str], Any]) -> None:
    """Replace the file that a SummaryWriter appends to; torch and tensorboard open it without a hook.

    Args:
        summary_writer: torch's; its first event is on the disk.
        open_file: opens a path for appending.
    """
    # SummaryWriter > FileWriter > EventFileWriter > _AsyncWriter > RecordWriter > file
    events = summary_writer.file_writer.event_writer
    events._async_writer._writer._writer = open_file(events._file_name)


def wandb_arguments(logger: WandbLogger) -> dict[str, Any]:
    """Return the arguments of `wandb.init`, to be changed in place before the logger starts its run.

    The constructor of WandbLogger is the only public way to set them, and the id of a resumed run is known later.
    """
    return logger._wandb_init


def finish_trace(profiler: PyTorchProfiler) -> None:
    """End the trace that is being recorded, which calls `on_trace_ready`; publicly only the next step ends it."""
    profiler._delete_profilers()


def describe_statistics(profiler: PyTorchProfiler, statistics: Mapping[str, str]) -> str:
    """Return {action: text} in the form of Lightning's profilers, which have no public function for it."""
    return profiler._stats_to_str(dict(statistics))
