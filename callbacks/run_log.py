"""The written record of a run: train.log for people, log.jsonl and metrics.jsonl for programs, environment.json."""

import json
import logging
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers.logger import Logger

from callbacks.log_files import JsonLogFile, LogFile
from callbacks.progress import TimeLeft, show_beside, show_time_left, stage_of, summary
from callbacks.tensorboard import TensorBoard
from callbacks.tracker import Tracker, begin_trackers
from engine.appended_file import AppendedFile
from engine.early_lines import EarlyLines, repeat_early_lines
from engine.events import UNSAID, event
from engine.json_lines import JsonLines, strict

log = logging.getLogger("lockstep")

_PACKAGES = ("torch", "lightning", "torchmetrics", "jsonargparse", "numpy", "polars")


class MetricsFile(Logger):
    """A Lightning logger that appends one JSON object a line: time, run, process, step, epoch, metrics by their names.

    ``step`` counts finished optimizer steps, so the first one is 1; ``time`` is UTC in ISO 8601. A figure that is not
    finite is null, as JSON has neither NaN nor infinity. An evaluation's record also says which of its settings are
    ``altered``, that is, not the run's.
    """

    def __init__(self, path: Path, progress: Callable[[], tuple[int, int]], altered: str = "") -> None:
        super().__init__()
        self.path, self._progress, self._altered = path, progress, altered
        self.figures: dict[str, float] = {}
        """The newest of a training step."""
        self.beside_a_bar = False
        self._file = AppendedFile(path)

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The run's config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        finished_steps, epoch = self._progress()
        record: dict[str, Any] = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "run": self.path.parent.name,
            "process": 0,
            "step": finished_steps,
            "epoch": epoch,
        }
        if stage_of(metrics):
            record["altered"] = self._altered
        record.update({key: value for key, value in metrics.items() if key != "epoch"})
        self._file.write(json.dumps(strict(record), allow_nan=False) + "\n")
        line = summary(metrics, finished_steps, epoch)
        figures = {name: value for name, value in metrics.items() if name != "epoch"}
        if line:
            self.figures = metrics
            log.info("%s", line, extra={"beside_a_bar": self.beside_a_bar, "fields": figures})
        elif stage := stage_of(metrics):
            said = "step %d, epoch %d: evaluated (%s)"
            evaluated = event("evaluated", stage=stage, epoch=epoch, **figures)
            log.info(said, finished_steps, epoch, stage, extra=UNSAID | evaluated)
        log.debug("%s", "  ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()))

    def forget_after(self, step: int) -> None:
        """Drop what a run wrote after the checkpoint that it now goes on from; it is about to be written again."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if _step(line) <= step]
        if len(kept) < len(lines):
            self._file.close()
            beside = self.path.with_suffix(".jsonl.new")
            beside.write_text("".join(kept), encoding="utf-8")
            beside.replace(self.path)
            self._file = AppendedFile(self.path)

    def close(self) -> None:
        self._file.close()


class RunLog(Callback):
    """Writes train.log, metrics.jsonl and environment.json into the run's folder, on the first process only.

    log.jsonl is the first process's too, and log-PROCESS.jsonl what another one has to say.

    Args:
        debug: whether log.jsonl has, as train.log always, what helps to find an error in the program.
        keep_config: called when training begins; a start that is refused before leaves no config that nobody ran.
        altered: settings of an evaluation that are not its run's; empty: none.
    """

    _metrics: MetricsFile | None = None
    _loaded: tuple[int, int] | None = None

    def __init__(
        self, keep_config: Callable[[], object] = lambda: None, debug: bool = False, altered: str = ""
    ) -> None:
        self._keep_config, self._level, self._altered = keep_config, logging.DEBUG if debug else logging.INFO, altered
        self._training, self._time_left = False, TimeLeft()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        folder = Path(trainer.default_root_dir)
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
        command = trainer.state.fn.value if trainer.state.fn else None
        lines = JsonLines(folder.name, trainer.global_rank, lambda: self._step(trainer), command)
        self._attach(JsonLogFile(folder, trainer.global_rank), self._level, lines)
        for handler in log.handlers:
            if isinstance(handler.formatter, JsonLines):  # the console's
                handler.setFormatter(lines)
        if not trainer.is_global_zero:
            return
        text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
        self._attach(LogFile(folder / "train.log"), logging.DEBUG, text)
        self._metrics = MetricsFile(folder / "metrics.jsonl", lambda: self._progress(trainer), self._altered)
        for tracker in trainer.loggers:
            if isinstance(tracker, Tracker):
                tracker.finished_steps = lambda: self._progress(trainer)[0]
        trainer.loggers = [*trainer.loggers, self._metrics]
        bar = trainer.progress_bar_callback
        if bar is not None:
            self._metrics.beside_a_bar = not getattr(bar, "is_disabled", False)
            show_beside(bar, lambda: self._metrics.figures if self._metrics is not None else {})
            show_time_left(bar, self._time_left)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _forget_early_lines()
        if not trainer.is_global_zero:
            return
        facts = environment(trainer)
        folder = Path(trainer.default_root_dir)
        (folder / "environment.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        log.info(
            "run folder %s; %d process(es) on %s, precision in force: %s",
            folder, trainer.world_size, facts["device"], trainer.precision,
        )  # fmt: skip

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        begin_trackers(trainer)  # may refuse the run, so before its config is kept
        self._training = True
        if self._metrics is None:
            return
        self._keep_config()
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoard):
                logger.begin()
        self._metrics.forget_after(trainer.global_step)
        self._began = time.monotonic()
        self._time_left.begin(trainer.global_step, trainer.estimated_stepping_batches)
        facts = {"epoch": trainer.current_epoch, "processes": trainer.world_size}
        if trainer.global_step:
            resumed = event("run_resumed", **facts, path=str(trainer.ckpt_path))
            log.info("going on after step %d (epoch %d)", trainer.global_step, trainer.current_epoch, extra=resumed)
        else:
            log.info("training begins", extra=UNSAID | event("run_started", **facts))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._metrics is not None and self._training:  # there may have been nothing left to train
            seconds = time.monotonic() - self._began
            ended = event("run_ended", epoch=trainer.current_epoch, seconds=round(seconds, 3))
            said = "training has ended after step %d, %.0f s after this start of it began"
            log.info(said, trainer.global_step, seconds, extra=UNSAID | ended)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        log.debug("stopped at step %d", trainer.global_step, exc_info=exception)
        self.teardown(trainer, pl_module, "")  # Lightning does not call it now

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._metrics is not None:
            self._metrics.close()
        _forget_early_lines()
        for handler in list(log.handlers):
            if isinstance(handler, (LogFile, JsonLogFile)):
                log.removeHandler(handler)
                handler.close()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._loaded = checkpoint["global_step"], checkpoint["epoch"]

    def _progress(self, trainer: Trainer) -> tuple[int, int]:
        """(optimizer steps, epoch): of the training, or of the checkpoint that is evaluated."""
        if trainer.state.fn == "fit":
            return trainer.global_step, trainer.current_epoch
        return self._loaded or (0, 0)

    def _step(self, trainer: Trainer) -> int | None:
        """Of the training or of the checkpoint that is evaluated; None before."""
        if trainer.state.fn == "fit":
            return trainer.global_step if self._training else None
        return self._loaded[0] if self._loaded is not None else None

    @staticmethod
    def _attach(handler: logging.Handler, level: int, form: logging.Formatter) -> None:
        handler.setLevel(level)
        handler.setFormatter(form)
        repeat_early_lines(log, handler)
        log.addHandler(handler)


def _forget_early_lines() -> None:
    for handler in [one for one in log.handlers if isinstance(one, EarlyLines)]:
        log.removeHandler(handler)


def _step(line: str) -> float:
    """The step of a record; infinite if the line was torn when a process was killed."""
    try:
        return json.loads(line)["step"] if line.endswith("\n") else math.inf
    except (json.JSONDecodeError, KeyError, TypeError):
        return math.inf


def environment(trainer: Trainer) -> dict[str, Any]:
    """What a figure of this run depends on besides its config: precision in force, device, versions, commit."""
    return {
        "precision": trainer.precision,
        "device": str(trainer.strategy.root_device),
        "processes": trainer.world_size,
        "nodes": trainer.num_nodes,
        "accumulation": trainer.accumulate_grad_batches,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checkout's commit, with `-dirty` when it has changes; in an image, which has none, what it was made from."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("LOCKSTEP_COMMIT") or None
