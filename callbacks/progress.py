"""A step's figures in one line of train.log and beside the progress bar, which also says when the training will end."""

import math
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ProgressBar

_NORM = "train/gradient_norm"
_SHOWN: dict[str, tuple[str, Callable[[float], str]]] = {
    "train/loss": ("loss", "{:.4g}".format),
    "train/learning_rate": ("lr", "{:.2e}".format),
    _NORM: ("norm", "{:.3g}".format),
    "train/samples_per_second": ("samples/s", "{:.4g}".format),
    "train/data_wait": ("wait", "{:.0%}".format),
    "train/memory_gib": ("GiB", "{:.2f}".format),
}
"""Metric -> its short name, and how it is written."""


def short(figures: Mapping[str, float]) -> dict[str, str]:
    """Of a step's metrics those that say how training goes; empty for those of an evaluation."""
    return {name: write(figures[key]) for key, (name, write) in _SHOWN.items() if key in figures}


def stage_of(figures: Mapping[str, float]) -> str | None:
    """`val` or `test` of an evaluation's figures."""
    return next((stage for stage in ("val", "test") if any(name.startswith(f"{stage}/") for name in figures)), None)


def summary(figures: Mapping[str, float], step: int, epoch: int) -> str:
    """`step 300, epoch 2: loss 1.23, lr 3.00e-04, norm 0.82 (encoder 0.3, projector 0.7), ...`, or nothing to say."""
    if "train/loss" not in figures:
        return ""
    parts = [
        f"{key.removeprefix(_NORM + '/')} {value:.3g}" for key, value in figures.items() if key.startswith(_NORM + "/")
    ]
    said = short(figures)
    if parts and "norm" in said:
        said["norm"] += f" ({', '.join(parts)})"
    return f"step {step}, epoch {epoch}: {', '.join(f'{name} {value}' for name, value in said.items())}"


def show_beside(bar: ProgressBar, figures: Callable[[], Mapping[str, float]]) -> None:
    """Makes a progress bar show these figures by their short names, the newest there are, beside its own."""
    own = bar.get_metrics

    def get_metrics(trainer: Any, pl_module: Any) -> dict[str, Any]:
        others = {name: value for name, value in own(trainer, pl_module).items() if name not in (*_SHOWN, "v_num")}
        return {**short(figures()), **others}

    bar.get_metrics = get_metrics  # type: ignore[method-assign]


class TimeLeft:
    """How long a training will take, as the mean of its steps says, evaluations and checkpoints between them too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._planned = self._first = self._began = math.nan

    def begin(self, step: int, planned: float) -> None:
        """
        Args:
            step: optimizer steps that were finished before this start.
            planned: those of the whole training; infinite or, as Lightning has it, -1 when nobody knows.
        """
        self._first, self._planned, self._began = step, planned if planned > 0 else math.inf, self._clock()

    def seconds(self, step: int) -> float | None:
        """After so many steps; None before the first one of this start, and where no end is planned."""
        if not step > self._first or not math.isfinite(self._planned):
            return None
        return max(self._planned - step, 0) * (self._clock() - self._began) / (step - self._first)


def show_time_left(bar: ProgressBar, time_left: TimeLeft) -> None:
    """Makes a rich bar say of the training, beside the time that is left of the epoch, that of the whole run."""
    from lightning.pytorch.callbacks import RichProgressBar

    if not isinstance(bar, RichProgressBar):
        return
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    columns = bar.configure_columns

    class RunColumn(ProgressColumn):
        def __init__(self, trainer: Trainer) -> None:
            self._trainer = trainer
            super().__init__()

        def render(self, task: Task) -> Text:
            training = task.id == bar.train_progress_bar_id
            seconds = time_left.seconds(self._trainer.global_step) if training else None
            said = "" if seconds is None else f"run left {timedelta(seconds=round(seconds))}"
            return Text(said, style=bar.theme.time)

    def configure_columns(trainer: Trainer) -> list[ProgressColumn]:
        return [*columns(trainer), RunColumn(trainer)]

    bar.configure_columns = configure_columns  # type: ignore[method-assign]
