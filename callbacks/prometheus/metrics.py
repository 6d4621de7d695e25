"""Collects a run's metrics for Prometheus. Values are read at each scrape."""

import hashlib
import logging
import math
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from typing_extensions import override

from callbacks.logging.metric_sink import MetricSink
from callbacks.logging.progress_bar import TimeLeft
from engine.health.process_monitor import ProcessMonitor
from engine.run_trainer import as_run_trainer
from engine.system import host_memory
from engine.telemetry.log_events import EVENTS, event_of

PREFIX = "lockstep_"

GAUGES: dict[str, str] = {
    "world_size": "world size of the run",
    "start_timestamp_seconds": "start of the command in this process, in seconds since 1970",
    "training_start_timestamp_seconds": "start of training in this process, in seconds since 1970",
    "restarts": "number of times that the launcher (torchrun, SLURM) has restarted this process",
    "step": "finished optimizer steps, including those before a restart; absent before training",
    "epoch": "current epoch, from 0; absent before training",
    "planned_steps": "optimizer steps at the end of training; absent if not known",
    "time_left_seconds": "estimated time to the end of training, from the mean step of this start; +Inf before a step",
    "phase": "1 for the current phase of the process",
    "stalled_seconds": "time since this process last finished a batch, step or phase",
    "stalled_limit_seconds": "time without progress above which /healthz returns 503; +Inf while starting",
    "resident_memory_bytes": "resident memory of this process without its loader workers",
    "checkpoint_timestamp_seconds": "time of the last checkpoint of this start, in seconds since 1970",
    "checkpoint_save_seconds": "duration of saving the last checkpoint",
    "checkpoint_size_bytes": "size of the last checkpoint",
    "gpu_memory_allocated_bytes": "GPU memory in tensors of this process",
    "gpu_memory_reserved_bytes": "GPU memory reserved by the allocator of this process",
    "gpu_memory_used_bytes": "GPU memory used by all processes",
    "gpu_memory_size_bytes": "total GPU memory",
}
"""Names of gauges, without the prefix, and their help texts. Only rank 0 has the gauges of checkpoints."""

COUNTERS: dict[str, str] = {
    "steps_total": "optimizer steps finished by this process since it started",
    "data_wait_seconds_total": "time that training has waited for this process's loader",
    "cpu_seconds_total": "CPU time of this process without its loader workers",
    "events_total": "events that this process has logged, by name; see engine/telemetry/log_events.py",
}
"""Names of counters, without the prefix, and their help texts."""


def metric_name(logged_name: str) -> str:
    """Return the Prometheus name of a logged metric: `val/hr@10` is `lockstep_val_hr_at_10`.

    Logged names contain their unit already (`train/memory_gib`).
    """
    return PREFIX + re.sub(r"\W", "_", logged_name.replace("@", "_at_"), flags=re.ASCII)


def metric_names(logged_names: Iterable[str]) -> dict[str, str]:
    """Return {logged name: Prometheus name}. Of names that would be equal, all but the first end with a hash.

    `val/a-b` and `val/a_b` are equal, and often kinds of questions in Chinese: other than ASCII characters become
    underscores. The first keeps its name, so that its series continues.
    """
    names: dict[str, str] = {}
    for logged_name in logged_names:
        name = metric_name(logged_name)
        is_taken = name in names.values()
        names[logged_name] = f"{name}_{hashlib.sha256(logged_name.encode()).hexdigest()[:8]}" if is_taken else name
    return names


class LatestMetrics(MetricSink):
    """Logger that keeps the newest value of each metric, NaN and infinity included."""

    def __init__(self) -> None:
        super().__init__("metrics endpoint")
        self.newest: dict[str, float] = {}

    @override
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        # Lightning adds the epoch, which has its own gauge.
        self.newest |= {name: float(value) for name, value in metrics.items() if name != "epoch"}


class EventCounts(logging.Handler):
    """Log handler that counts events and keeps the gauges of the last checkpoint."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.counts = Counter(dict.fromkeys(EVENTS, 0))
        """Count of each event. It begins at 0, because Prometheus needs two samples to see an increase."""
        self.checkpoint: dict[str, float] = {}

    @override
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
    """Collector of one rank.

    The server's threads call `collect`, which waits neither for training nor for a device.

    Args:
        trainer: trainer of the run.
        watch: monitor of this process.
        stall_limit: returns the seconds that the process may spend in its current phase without progress.
    """

    def __init__(self, trainer: Trainer, watch: ProcessMonitor, stall_limit: Callable[[], float]) -> None:
        self.trainer, self.watch, self.stall_limit = trainer, watch, stall_limit
        self.logged, self.events = LatestMetrics(), EventCounts()
        self.training_began: float | None = None
        self.first_step, self.planned_steps = 0, math.inf
        self._time_left = TimeLeft()
        self._began = time.time()
        self._run = {"run": os.path.basename(trainer.default_root_dir), "rank": str(trainer.global_rank)}
        device = trainer.strategy.root_device
        # Facts that do not change in a run, as the labels of a constant metric.
        self._info = {
            "command": str(trainer.state.fn.value if trainer.state.fn else ""),
            "precision": str(trainer.precision),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "host": socket.gethostname(),
        }
        # A launcher that is not in use sets no variable.
        restarts = (os.environ.get(name, "0") for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
        self._restarts = sum(int(count) for count in restarts if count.isdigit())

    def begin_training(self) -> None:
        """Record the first and the planned step. Lightning knows the planned number once training begins."""
        self.first_step, planned = self.trainer.global_step, self.trainer.estimated_stepping_batches
        self.planned_steps = planned if planned > 0 else math.inf  # Lightning returns -1 for no limit
        self._time_left.begin(self.first_step, planned)
        self.training_began = time.time()  # last, because the server's threads read the values above once it is set

    def collect(self) -> Iterator[Any]:
        """Yield prometheus_client's metric families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        labels, values = list(self._run), list(self._run.values())
        run = InfoMetricFamily(PREFIX + "run", "command, precision, device and host of this process", labels=labels)
        run.add_metric(values, self._info)
        yield run
        # Values are read in the thread of the scrape; none of them synchronizes a device.
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
        events = CounterMetricFamily(PREFIX + "events_total", COUNTERS["events_total"], labels=[*labels, "event"])
        # A copy, because training may log an event while this thread iterates.
        for event, count in dict(self.events.counts).items():
            events.add_metric([*values, event], count)
        yield events
        for name, (logged_name, value) in self._logged_gauges().items():
            gauge = GaugeMetricFamily(name, f"{logged_name} as last logged, see metrics.jsonl", labels=labels)
            gauge.add_metric(values, value)
            yield gauge

    def _gauges(self) -> dict[str, float]:
        trainer, watch = self.trainer, self.watch
        gauges: dict[str, float] = {
            "world_size": trainer.world_size,
            "start_timestamp_seconds": self._began,
            "restarts": self._restarts,
            "stalled_seconds": watch.idle,
            "stalled_limit_seconds": self.stall_limit(),
            "resident_memory_bytes": host_memory.resident_memory(),
        }
        return gauges | self._progress() | self.events.checkpoint | _gpu_memory(trainer.strategy.root_device)

    def _progress(self) -> dict[str, float]:
        """Return the gauges of training. An evaluation has none, because its steps would look like a new training."""
        if self.training_began is None:
            return {}
        step = self.trainer.global_step
        gauges = {
            "training_start_timestamp_seconds": self.training_began,
            "step": step,
            "epoch": self.trainer.current_epoch,
        }
        if self.planned_steps < math.inf:
            seconds_left = self._time_left.seconds(step)
            gauges |= {
                "planned_steps": self.planned_steps,
                "time_left_seconds": math.inf if seconds_left is None else seconds_left,
            }
        return gauges

    def _counters(self) -> dict[str, float]:
        loader = as_run_trainer(self.trainer).train_dataloader  # None in an evaluation
        steps = self.trainer.global_step - self.first_step if self.training_began is not None else 0
        return {
            "steps_total": max(0, steps),
            "data_wait_seconds_total": loader.waited if loader is not None else 0.0,
            "cpu_seconds_total": time.process_time(),
        }

    def _logged_gauges(self) -> dict[str, tuple[str, float]]:
        """Return {Prometheus name: (logged name, value)}. The names of this file take precedence."""
        reserved = {PREFIX + name for name in (*GAUGES, *COUNTERS, "run_info")}
        newest = dict(self.logged.newest)
        gauges = {name: (logged_name, newest[logged_name]) for logged_name, name in metric_names(newest).items()}
        return {name: gauge for name, gauge in gauges.items() if name not in reserved}


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
        # After a CUDA error every CUDA call fails. Training reports the error; the other metrics stay available.
        return {}
