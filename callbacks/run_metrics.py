"""A run's metrics as Prometheus has them: one convention for all names, everything read when it is asked for."""

import logging
import math
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers.logger import Logger

from callbacks.progress import TimeLeft
from engine import host_memory
from engine.events import EVENTS, event_of
from engine.watch import Watch

PREFIX = "lockstep_"

GAUGES: dict[str, str] = {
    "processes": "processes of the run",
    "start_timestamp_seconds": "when this process began its command, in seconds since 1970",
    "training_start_timestamp_seconds": "when this process began to train, in seconds since 1970",
    "restarts": "how often the launcher (torchrun, SLURM) has started this process again",
    "step": "optimizer steps of the training that are finished, those before a restart too; absent before it begins",
    "epoch": "the epoch under way, from 0; absent before the training begins",
    "planned_steps": "optimizer steps after which the training is over; absent while nobody knows",
    "time_left_seconds": "what the training will still take by the mean of this start; +Inf before its first step",
    "phase": "1 for what the process does now",
    "standstill_seconds": "for how long this process has finished no batch, step or phase",
    "standstill_limit_seconds": "the standstill from which on /healthz says 503; +Inf while starting",
    "resident_memory_bytes": "memory that this process has, without its loader's workers",
    "checkpoint_timestamp_seconds": "when this start has last put a checkpoint on the disk, in seconds since 1970",
    "checkpoint_save_seconds": "how long it took to write that checkpoint",
    "checkpoint_size_bytes": "how large that checkpoint is",
    "gpu_memory_allocated_bytes": "memory of the GPU that this process's tensors take",
    "gpu_memory_reserved_bytes": "memory of the GPU that this process's allocator holds",
    "gpu_memory_used_bytes": "memory of the GPU that is taken, by whatever process",
    "gpu_memory_size_bytes": "memory that the GPU has",
}
"""What a process says of itself besides its counters, without the prefix. Checkpoints are the first process's."""

COUNTERS: dict[str, str] = {
    "steps_total": "optimizer steps that this process has finished since it began",
    "data_wait_seconds_total": "how long the training has waited for this process's loader",
    "cpu_seconds_total": "processor time of this process, without its loader's workers",
    "events_total": "what has happened, as this process has logged it; engine/events.py says what each event means",
}


def metric_name(figure: str) -> str:
    """`val/hr@10` is `lockstep_val_hr_at_10`. Units are part of a figure's name already (`train/memory_gib`)."""
    return PREFIX + re.sub(r"\W", "_", figure.replace("@", "_at_"), flags=re.ASCII)


class Figures(Logger):
    """Keeps the newest of each figure that the run logs."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[str, float] = {}

    @property
    def name(self) -> str:
        return "metrics endpoint"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The run's config.yaml holds them."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        # Lightning adds the epoch, which has its own gauge.
        self.newest |= {figure: float(value) for figure, value in metrics.items() if figure != "epoch"}


class Events(logging.Handler):
    """Counts the events in the log, and keeps what it says of the last checkpoint."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.counts = Counter(dict.fromkeys(EVENTS, 0))
        """Of every event, as a rule or a rate needs the 0 before the first one."""
        self.checkpoint: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        name, fields = event_of(record)
        if name is None:
            return
        self.counts[name] += 1
        if name == "checkpoint_saved":
            self.checkpoint = {
                "checkpoint_timestamp_seconds": record.created,
                "checkpoint_save_seconds": fields["seconds"],
                "checkpoint_size_bytes": fields["bytes"],
            }


class RunMetrics:
    """The collector of one process: `collect` is called by the server's threads, and waits neither for the training
    nor for a device.

    Args:
        watch: the process's own.
        limit: how long it may stand still now, in seconds.
    """

    def __init__(self, trainer: Trainer, watch: Watch, limit: Callable[[], float]) -> None:
        self.trainer, self.watch, self.limit = trainer, watch, limit
        self.figures, self.events = Figures(), Events()
        self.training_began: float | None = None
        self.first_step, self.planned_steps = 0, math.inf
        self._time_left = TimeLeft()
        self._began = time.time()
        self._run = {"run": os.path.basename(trainer.default_root_dir), "process": str(trainer.global_rank)}
        device = trainer.strategy.root_device
        self._facts = {
            "command": str(trainer.state.fn.value if trainer.state.fn else ""),
            "precision": str(trainer.precision),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "host": socket.gethostname(),
        }
        launched = (os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
        self._restarts = sum(int(count) for count in launched if count.isdigit())

    def begin_training(self) -> None:
        """Counts its steps from here; Lightning knows now how many are planned."""
        self.first_step, planned = self.trainer.global_step, self.trainer.estimated_stepping_batches
        self.planned_steps = planned if planned > 0 else math.inf  # -1: without end
        self._time_left.begin(self.first_step, planned)
        self.training_began = time.time()  # the last one: threads that answer read all of it from now on

    def collect(self) -> Iterator[Any]:
        """prometheus_client's metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        labels, values = list(self._run), list(self._run.values())
        run = InfoMetricFamily(PREFIX + "run", "what this process runs, and where", labels=labels)
        run.add_metric(values, self._facts)
        yield run
        for name, value in self._gauges().items():
            gauge = GaugeMetricFamily(PREFIX + name, GAUGES[name], labels=labels)
            gauge.add_metric(values, value)
            yield gauge
        phase = GaugeMetricFamily(PREFIX + "phase", GAUGES["phase"], labels=[*labels, "phase"])
        phase.add_metric([*values, self.watch.phase], 1)
        yield phase
        for name, value in self._counters().items():
            counter = CounterMetricFamily(PREFIX + name, COUNTERS[name], labels=labels)
            counter.add_metric(values, value)
            yield counter
        happened = CounterMetricFamily(PREFIX + "events_total", COUNTERS["events_total"], labels=[*labels, "event"])
        for event, count in dict(self.events.counts).items():
            happened.add_metric([*values, event], count)
        yield happened
        for name, (figure, value) in self._logged().items():
            gauge = GaugeMetricFamily(name, f"{figure} as last logged, see metrics.jsonl", labels=labels)
            gauge.add_metric(values, value)
            yield gauge

    def _gauges(self) -> dict[str, float]:
        trainer, watch = self.trainer, self.watch
        found: dict[str, float] = {
            "processes": trainer.world_size,
            "start_timestamp_seconds": self._began,
            "restarts": self._restarts,
            "standstill_seconds": watch.still,
            "standstill_limit_seconds": self.limit(),
            "resident_memory_bytes": host_memory.resident(),
        }
        return found | self._progress() | self.events.checkpoint | _gpu_memory(trainer.strategy.root_device)

    def _progress(self) -> dict[str, float]:
        """Of a training: an evaluation's steps are none, and would look like a training that begins anew."""
        if self.training_began is None:
            return {}
        step = self.trainer.global_step
        found = {
            "training_start_timestamp_seconds": self.training_began,
            "step": step,
            "epoch": self.trainer.current_epoch,
        }
        if self.planned_steps < math.inf:
            left = self._time_left.seconds(step)
            found |= {"planned_steps": self.planned_steps, "time_left_seconds": math.inf if left is None else left}
        return found

    def _counters(self) -> dict[str, float]:
        loader = self.trainer.train_dataloader
        steps = self.trainer.global_step - self.first_step if self.training_began is not None else 0
        return {
            "steps_total": max(0, steps),
            "data_wait_seconds_total": getattr(loader, "waited", 0.0),
            "cpu_seconds_total": time.process_time(),
        }

    def _logged(self) -> dict[str, tuple[str, float]]:
        """{metric: (figure, value)}; what a process says of itself goes before a figure of the same name."""
        own = {PREFIX + name for name in (*GAUGES, *COUNTERS, "run_info")}
        named = {metric_name(figure): (figure, value) for figure, value in dict(self.figures.newest).items()}
        return {name: found for name, found in named.items() if name not in own}


def _gpu_memory(device: torch.device) -> dict[str, float]:
    if device.type != "cuda":
        return {}
    try:
        free, size = torch.cuda.mem_get_info(device)
        return {
            "gpu_memory_allocated_bytes": torch.cuda.memory_allocated(device),
            "gpu_memory_reserved_bytes": torch.cuda.memory_reserved(device),
            "gpu_memory_used_bytes": size - free,
            "gpu_memory_size_bytes": size,
        }
    except RuntimeError:
        # After an error of CUDA every call to it fails. The training hears of it; the other metrics say how it ends.
        return {}
