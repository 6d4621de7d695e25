"""Shows the progress bar of a run, and logs a step's metrics in one line of train.log."""

import math
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich.progress import ProgressColumn, Task
from rich.text import Text
from typing_extensions import override

_NORM = "train/gradient_norm"
_DISPLAYED: dict[str, tuple[str, Callable[[float], str]]] = {
    "train/loss": ("loss", "{:.4g}".format),
    "train/learning_rate": ("lr", "{:.2e}".format),
    _NORM: ("norm", "{:.3g}".format),
    "train/samples_per_second": ("samples/s", "{:.4g}".format),
    "train/data_wait": ("wait", "{:.0%}".format),
    "train/memory_gib": ("GiB", "{:.2f}".format),
}
"""{metric: (short name, format)}"""


def format_metrics(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return the main metrics of a training step by their short names; empty for an evaluation."""
    return {name: template(metrics[key]) for key, (name, template) in _DISPLAYED.items() if key in metrics}


def stage_of(metrics: Mapping[str, float]) -> str | None:
    """Return `val` or `test` for an evaluation's metrics, otherwise None."""
    return next((stage for stage in ("val", "test") if any(name.startswith(f"{stage}/") for name in metrics)), None)


def step_summary(metrics: Mapping[str, float], step: int, epoch: int) -> str:
    """Return a line for a training step; an empty string for other metrics.

    Example: `step 300, epoch 2: loss 1.23, lr 3.00e-04, norm 0.82 (encoder 0.3, projector 0.7), ...`
    """
    if "train/loss" not in metrics:
        return ""
    parts = [
        f"{key.removeprefix(_NORM + '/')} {value:.3g}" for key, value in metrics.items() if key.startswith(_NORM + "/")
    ]
    texts = format_metrics(metrics)
    if parts and "norm" in texts:
        texts["norm"] += f" ({', '.join(parts)})"
    return f"step {step}, epoch {epoch}: {', '.join(f'{name} {text}' for name, text in texts.items())}"


class TimeLeft:
    """Estimates the time to the end of training from the mean time per step, with evaluations and checkpoints."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._planned = self._first_step = self._start = math.nan

    def begin(self, step: int, planned: float) -> None:
        """Start the clock.

        Args:
            step: optimizer steps that are finished before this start.
            planned: optimizer steps of the whole training; infinity, or -1 as in Lightning, if it is not known.
        """
        self._first_step, self._planned, self._start = step, planned if planned > 0 else math.inf, self._clock()

    def seconds(self, step: int) -> float | None:
        """Return the seconds left after a step; None before the first step of this start, or without a planned end."""
        # Before `begin` the values are NaN, so that `step > NaN` is false.
        if not step > self._first_step or not math.isfinite(self._planned):
            return None
        # The mean of this start only: the machine of an earlier start may have been another.
        return max(self._planned - step, 0) * (self._clock() - self._start) / (step - self._first_step)


class RunProgressBar(RichProgressBar):
    """Lightning's RichProgressBar with the latest training metrics by their short names and the time left of the run.

    RunLog sets the two attributes.
    """

    latest_metrics: Callable[[], Mapping[str, float]] = dict
    """Returns the metrics of the last logged training step."""

    time_left: TimeLeft | None = None

    @override
    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        bar_metrics = super().get_metrics(trainer, pl_module)
        hidden = (*_DISPLAYED, "v_num")  # displayed by their short names, or not useful
        other_metrics = {name: value for name, value in bar_metrics.items() if name not in hidden}
        return {**format_metrics(self.latest_metrics()), **other_metrics}

    @override
    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn]:
        return [*super().configure_columns(trainer), _RunColumn(self, trainer)]


class _RunColumn(ProgressColumn):
    """Column with the time left of the run, in the row of training only."""

    def __init__(self, bar: RunProgressBar, trainer: Trainer) -> None:
        self._bar, self._trainer = bar, trainer
        super().__init__()

    @override
    def render(self, task: Task) -> Text:
        # Rich renders the column in each row: training, validation, ...
        time_left = self._bar.time_left if task.id == self._bar.train_progress_bar_id else None
        seconds = None if time_left is None else time_left.seconds(self._trainer.global_step)
        text = "" if seconds is None else f"run left {timedelta(seconds=round(seconds))}"
        return Text(text, style=self._bar.theme.time)
