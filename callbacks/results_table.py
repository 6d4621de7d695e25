"""The table at the end of a run: the model's figures beside its baselines', and where the run's files are."""

import logging
import math
import sys
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from engine.checkpoint_file import CHECKPOINTS
from engine.events import UNSAID

log = logging.getLogger("lockstep")

_MOST_ACROSS = 8
"""Metrics that fit side by side."""


class ResultsTable(Callback):
    """Has the metrics of the best checkpoint (after fit) or of the evaluation, beside the baselines'.

    It comes before the callbacks that save checkpoints, so that one saved after an evaluation knows of it; ShownLast,
    which prints it, comes last.

    A module logs a baseline's figures as `STAGE/baseline/NAME/METRIC`, its own as `STAGE/METRIC`. Where there are
    baselines the table has their metrics as columns, else all metrics of the stage.
    """

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self.baselines: dict[str, float] = {}
        self._page: tuple[str, list[tuple[str, dict[str, float]]]] | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        metrics = {key: float(value) for key, value in trainer.callback_metrics.items() if key.startswith("val/")}
        self.baselines.update({key: value for key, value in metrics.items() if "/baseline/" in key})
        own = {key: value for key, value in metrics.items() if "/baseline/" not in key}
        if self._is_best(trainer, own):
            self.best = own
        if trainer.state.fn == "validate" and trainer.is_global_zero:
            self._set("val", metrics, "validation")

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            title = "validation" if trainer.fast_dev_run else "validation, best checkpoint"
            self._set("val", {**self.best, **self.baselines}, title)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
            self._set("test", metrics, "test")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "baselines": self.baselines}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.baselines = state_dict["best"], state_dict["baselines"]

    def _is_best(self, trainer: Trainer, metrics: dict[str, float]) -> bool:
        monitors = [c for c in trainer.checkpoint_callbacks if getattr(c, "monitor", None) in metrics]
        if not monitors or not self.best:
            return True
        monitor = monitors[0]
        assert monitor.monitor is not None
        new, old = metrics[monitor.monitor], self.best.get(monitor.monitor, math.nan)
        return math.isnan(old) or (new > old if monitor.mode == "max" else new < old)

    def show(self, trainer: Trainer) -> None:
        """Prints the table, if there is one, and where the run's files are."""
        if self._page is None:
            return
        title, rows = self._page
        self._page = None
        if rows:
            _print_table(title, rows)
        folder = Path(trainer.default_root_dir)
        if trainer.fast_dev_run:
            log.info("fast_dev_run: nothing was saved")
            return
        log.info("files of this run: %s", folder)
        if trainer.state.fn == "fit" and (folder / CHECKPOINTS / "best.ckpt").is_file():
            log.info("figures on held-out test data: python train.py test --run_name %s", folder.name)

    def _set(self, stage: str, metrics: dict[str, float], title: str) -> None:
        rows = table_rows(stage, metrics)
        for name, values in rows:
            figures = "  ".join(f"{k} {v:.4f}" for k, v in values.items())
            log.info("%s: %s %s", title, name, figures, extra=UNSAID)
        self._page = title, rows


class ShownLast(Callback):
    """Prints a ResultsTable when all other callbacks are torn down: the progress bar draws itself a last time there."""

    def __init__(self, table: ResultsTable) -> None:
        self._table = table

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._table.show(trainer)


def _print_table(title: str, rows: list[tuple[str, dict[str, float]]]) -> None:
    """Systems down and metrics across; many metrics go down, and systems across."""
    from rich.console import Console
    from rich.table import Table

    metrics = list(rows[0][1])
    cells = [[name, *(f"{values[m]:.4f}" if m in values else "" for m in metrics)] for name, values in rows]
    lines = [["", *metrics], *cells]
    if len(rows) == 1 or len(metrics) > _MOST_ACROSS:
        lines = [list(line) for line in zip(*lines, strict=True)]
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in lines[0]:
        table.add_column(heading, justify="right" if heading else "left")
    for line in lines[1:]:
        table.add_row(*line)
    # Where there is no screen (a log), nothing may be cut to its width.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def table_rows(stage: str, metrics: dict[str, float]) -> list[tuple[str, dict[str, float]]]:
    """(name, {metric: value}) of the model first, then of each baseline; columns in the order of the first row."""
    own: dict[str, float] = {}
    baselines: dict[str, dict[str, float]] = {}
    for key, value in metrics.items():
        if not key.startswith(stage + "/"):
            continue
        name = key[len(stage) + 1 :]
        if name.startswith("baseline/"):
            baseline, metric = name[len("baseline/") :].split("/", 1)
            baselines.setdefault(baseline, {})[metric] = value
        else:
            own[name] = value
    if baselines:
        columns = dict.fromkeys(metric for values in baselines.values() for metric in values)
        own = {metric: own[metric] for metric in columns if metric in own}
    return [("this model", own), *baselines.items()] if own else list(baselines.items())
