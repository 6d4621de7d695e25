"""Prints a table at the end of a run: the metrics of the model and of its baselines."""

import logging
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from engine.checkpointing.checkpoint_schema import declare_callback
from engine.checkpointing.discovery import CHECKPOINTS
from engine.checkpointing.schema import METRIC, each, fields
from engine.run_trainer import as_run_trainer
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE

log = logging.getLogger("lockstep")

declare_callback("ResultsTable", fields({"best": each(METRIC), "baselines": each(METRIC)}))

_MAX_COLUMNS = 8
"""Metrics that fit side by side on a console."""


@runtime_checkable
class _MonitoringCheckpoint(Protocol):
    """Callback that keeps the best checkpoint by a metric, such as Lightning's ModelCheckpoint."""

    monitor: str | None
    mode: str


class _Page(NamedTuple):
    """A table that is printed at the end of the command."""

    title: str
    rows: list[tuple[str, dict[str, float]]]
    """(name, {metric: value}), the model first."""

    remark: str
    """Sentence below the table; may be empty."""


class ResultsTable(Callback):
    """Collects the metrics of the model (after a fit of its best checkpoint) and of the baselines.

    The callback comes before the callbacks that save checkpoints, so that a checkpoint contains the latest evaluation.
    `ResultsPrinter`, which prints the table, comes last.

    A module logs a baseline's metric as `STAGE/baseline/NAME/METRIC` and its own as `STAGE/METRIC`. The columns are the
    baselines' metrics, or all metrics of the stage if there are no baselines.

    A remark below the table names the baselines that are better than the model by the metric of best.ckpt. A baseline
    whose name begins with `optimum` is the best possible score and not meant.
    """

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self.baselines: dict[str, float] = {}
        self._page: _Page | None = None

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        metrics = {key: float(value) for key, value in trainer.callback_metrics.items() if key.startswith("val/")}
        self.baselines.update({key: value for key, value in metrics.items() if "/baseline/" in key})
        # Baselines are evaluated once in a run, so their metrics are stored separately from the best evaluation's.
        model_metrics = {key: value for key, value in metrics.items() if "/baseline/" not in key}
        if self._is_best(trainer, model_metrics):
            self.best = model_metrics
        if trainer.state.fn == "validate" and trainer.is_global_zero:
            self._set(trainer, "val", metrics, "validation")

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            title = "validation" if as_run_trainer(trainer).fast_dev_run else "validation, best checkpoint"
            self._set(trainer, "val", {**self.best, **self.baselines}, title)

    @override
    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
            self._set(trainer, "test", metrics, "test")

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "baselines": self.baselines}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.baselines = state_dict["best"], state_dict["baselines"]

    def _is_best(self, trainer: Trainer, metrics: dict[str, float]) -> bool:
        # Without a metric to select by, the newest evaluation counts as the best.
        selecting = [checkpoint for checkpoint in _monitoring(trainer) if checkpoint.monitor in metrics]
        if not selecting or not self.best:
            return True
        checkpoint = selecting[0]
        assert checkpoint.monitor is not None
        # Of equal values the last is the best, as for BestCheckpoint.
        new, old = metrics[checkpoint.monitor], self.best.get(checkpoint.monitor, math.nan)
        return math.isnan(old) or (new >= old if checkpoint.mode == "max" else new <= old)

    def show(self, trainer: Trainer) -> None:
        """Print the table, unless it is empty, and the run's folder."""
        if self._page is None:
            return
        page, self._page = self._page, None
        if page.rows:
            _print_table(page)
        folder = Path(trainer.default_root_dir)
        if as_run_trainer(trainer).fast_dev_run:
            log.info("fast_dev_run: nothing was saved")
            return
        log.info("files of this run: %s", folder)
        if trainer.state.fn == "fit" and (folder / CHECKPOINTS / "best.ckpt").is_file():
            log.info("metrics on held-out test data: %s test %s", PROGRAM, run_options(folder))

    def _set(self, trainer: Trainer, stage: str, metrics: dict[str, float], title: str) -> None:
        rows = table_rows(stage, metrics)
        remarks = (better_baselines(rows, checkpoint) for checkpoint in _monitoring(trainer))
        remark = next(filter(None, remarks), "")
        # The table is printed at the end of the command; the log files get its rows now.
        for name, values in rows:
            row = "  ".join(f"{metric} {value:.4f}" for metric, value in values.items())
            log.info("%s: %s %s", title, name, row, extra=HIDDEN_ON_CONSOLE)
        if remark:
            log.warning("%s: %s", title, remark, extra=HIDDEN_ON_CONSOLE)
        self._page = _Page(title, rows, remark)


class ResultsPrinter(Callback):
    """Prints a ResultsTable after the teardown of all other callbacks, in which the progress bar draws a last time."""

    def __init__(self, table: ResultsTable) -> None:
        self._table = table

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._table.show(trainer)


def _monitoring(trainer: Trainer) -> list[_MonitoringCheckpoint]:
    """Return the callbacks that keep the best checkpoint by a metric."""
    monitoring = [callback for callback in trainer.checkpoint_callbacks if isinstance(callback, _MonitoringCheckpoint)]
    return [callback for callback in monitoring if callback.monitor]


def better_baselines(rows: list[tuple[str, dict[str, float]]], checkpoint: _MonitoringCheckpoint) -> str:
    """Return a sentence that names the baselines that are better than the model; empty without any.

    Args:
        rows: rows of the table, the model's first.
        checkpoint: selects by a metric of the validation, which is compared.
    """
    assert checkpoint.monitor is not None, "`_monitoring` returns no others"
    metric = checkpoint.monitor.removeprefix("val/")
    if not rows or metric not in rows[0][1]:
        return ""
    (_, model_metrics), *baselines = rows
    # With the sign, larger is better for either mode.
    sign = 1 if checkpoint.mode == "max" else -1
    better = [
        f"{name} ({values[metric]:.4f})"
        for name, values in baselines
        if not name.startswith("optimum") and metric in values and sign * values[metric] > sign * model_metrics[metric]
    ]
    if not better:
        return ""
    return f"by {metric} ({model_metrics[metric]:.4f}) this model is worse than {' and '.join(better)}"


def _print_table(page: _Page) -> None:
    """Print one row per system. A single system, or many metrics, is printed with one row per metric."""
    from rich.console import Console
    from rich.table import Table

    rows = page.rows
    metrics = list(rows[0][1])
    cells = [
        [name, *(f"{values[metric]:.4f}" if metric in values else "" for metric in metrics)] for name, values in rows
    ]
    lines = [["", *metrics], *cells]
    if len(rows) == 1 or len(metrics) > _MAX_COLUMNS:
        # Transpose: a row for each metric, a column for each system.
        lines = [list(line) for line in zip(*lines, strict=True)]
    table = Table(title=page.title, title_justify="left", title_style="bold")
    for heading in lines[0]:
        table.add_column(heading, justify="right" if heading else "left")
    for line in lines[1:]:
        table.add_row(*line)
    # Without a terminal (a log file), rich would cut the table to 80 columns. Metrics contain names of the user's data,
    # in which brackets are no markup.
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False)
    console.print(table)
    if page.remark:
        console.print(page.remark, style="bold", highlight=False)


def table_rows(stage: str, metrics: dict[str, float]) -> list[tuple[str, dict[str, float]]]:
    """Return (name, {metric: value}) of the model and then of each baseline.

    Args:
        stage: `val` or `test`.
        metrics: logged metrics by name; metrics of other stages are ignored.
    """
    # Split `STAGE/METRIC` and `STAGE/baseline/NAME/METRIC`.
    model_metrics: dict[str, float] = {}
    baselines: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if not key.startswith(stage + "/"):
            continue
        name = key[len(stage) + 1 :]
        if name.startswith("baseline/"):
            baseline, metric = name[len("baseline/") :].split("/", 1)
            baselines.setdefault(baseline, {})[metric] = value
        else:
            model_metrics[name] = value
    if baselines:  # compare like with like
        columns = dict.fromkeys(metric for values in baselines.values() for metric in values)
        model_metrics = {metric: model_metrics[metric] for metric in columns if metric in model_metrics}
    return [("this model", model_metrics), *baselines.items()] if model_metrics else list(baselines.items())
