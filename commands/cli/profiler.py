"""Builds the profilers of `--trainer.profiler simple`, `advanced` or `pytorch`, which write into the run directory.

Lightning prints the first two to the console, and writes traces of the third into the current directory. Without the
option, NoProfiler replaces Lightning's PassThroughProfiler, which takes a tenth of a millisecond per step.
"""

import json
import logging
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from lightning.pytorch.profilers import AdvancedProfiler, PassThroughProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import profile, schedule
from typing_extensions import override

from engine.lightning_internals.loggers import describe_statistics, finish_trace
from engine.lightning_internals.processes import process_rank

log = logging.getLogger("lockstep")

FOLDER = "profile"

STEPS = 3
"""Steps of training, and of each evaluation, that `pytorch` traces after two warm-up steps."""

TOP_OPERATORS = 10
"""Operators logged at the end."""


def create_profiler(folder: Path, setting: Profiler | str | None) -> Profiler | str | None:
    """Return the profiler of `trainer.profiler`, which writes into the run directory.

    Args:
        folder: the run directory.
        setting: `trainer.profiler`; a Profiler and other names of Lightning are returned unchanged.
    """
    if setting is None:
        return NoProfiler()
    if setting == "simple":
        return SimpleProfiler(folder / FOLDER, setting)
    if setting == "advanced":
        return AdvancedProfiler(folder / FOLDER, setting)
    if setting == "pytorch":
        return TracingProfiler(folder / FOLDER, setting)
    return setting


class NoProfiler(PassThroughProfiler):
    """Measures nothing, without the generator that Lightning's PassThroughProfiler runs around every hook."""

    _nothing = nullcontext()

    @override
    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]  # it is one, too
        return self._nothing


class TracingProfiler(PyTorchProfiler):
    """PyTorch's profiler: writes a trace for each kind of step, and logs the most expensive operators.

    A trace, `profile/training_step-process-0.pt.trace.json`, opens in https://ui.perfetto.dev and has memory as a curve
    above the operators. Lightning's own table covers only the last trace, which may be of the validation.
    """

    def __init__(self, folder: Path, name: str) -> None:
        # Lightning drops its default schedule, and keeps all steps in memory, if the validation has fewer than five
        # batches; it keeps an explicit schedule.
        steps = schedule(wait=1, warmup=1, active=STEPS)
        super().__init__(folder, name, schedule=steps, profile_memory=True, on_trace_ready=self._save_trace)
        self._step = "steps"
        self._operators: dict[str, list[FunctionEventAvg]] = {}  # by kind of step, most expensive first

    @override
    def stop(self, action_name: str) -> None:
        if any(action_name.endswith(function) for function in self.STEP_FUNCTIONS):
            self._step = action_name.split(".")[-1]
        with warnings.catch_warnings():
            # torch warns at the second kind of step; `_save_trace` has saved the events of the first.
            warnings.filterwarnings("ignore", ".*Profiler clears events at the end of each cycle", UserWarning)
            super().stop(action_name)

    def _save_trace(self, profiler: profile) -> None:
        path = Path(self.dirpath or ".") / f"{self._step}-process-{process_rank()}.pt.trace.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
        trace["traceEvents"] += memory_curves(trace["traceEvents"])
        path.write_text(json.dumps(trace), encoding="utf-8")
        self._operators[self._step] = most_expensive_operators(list(profiler.key_averages()))

    @override
    def summary(self) -> str:
        finish_trace(self)
        return describe_statistics(
            self, {step: operator_table(operators, len(operators)) for step, operators in self._operators.items()}
        )

    @override
    def describe(self) -> None:
        super().describe()
        for step in sorted(self._operators, key=lambda step: step != "training_step")[:1]:
            shown = operator_table(self._operators[step], TOP_OPERATORS)
            log.info(
                "the %d most expensive operators of %s, over all steps of its trace:\n%s", TOP_OPERATORS, step, shown
            )
        if self._operators:
            log.info("traces for https://ui.perfetto.dev and tables of all operators: %s", self.dirpath)
        else:
            log.warning("nothing was traced: a trace needs at least %d steps", 2 + STEPS)


def most_expensive_operators(events: list[FunctionEventAvg]) -> list[FunctionEventAvg]:
    """Return operators by their own time, on the accelerator if one is used, else on the CPU; largest first.

    Annotations of PyTorch and Lightning (steps, modules, hooks) and kernels of the accelerator are omitted; the time of
    a kernel is included in the operator that launched it.
    """
    operators = [event for event in events if event.device_type == DeviceType.CPU and not event.is_user_annotation]
    operators.sort(key=lambda event: (event.self_device_time_total, event.self_cpu_time_total), reverse=True)
    return operators


def operator_table(operators: list[FunctionEventAvg], rows: int) -> str:
    """Return a table of the first operators: own time in ms and own memory in MiB, over the traced steps."""
    on_device = any(event.self_device_time_total for event in operators)

    def time_of(event: FunctionEventAvg) -> float:
        return event.self_device_time_total if on_device else event.self_cpu_time_total

    total = sum(map(time_of, operators)) or 1.0
    lines = [f"{'operator':<48} {'calls':>7} {'device ms' if on_device else 'CPU ms':>10} {'share':>7} {'MiB':>9}"]
    for event in operators[:rows]:
        memory = event.self_device_memory_usage if on_device else event.self_cpu_memory_usage
        name = (event.key or "")[:48]
        lines.append(
            f"{name:<48} {event.count:>7} {time_of(event) / 1e3:>10.2f} {time_of(event) / total:>7.1%} "
            f"{memory / 2**20:>9.1f}"
        )
    return "\n".join(lines)


def memory_curves(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return counter events, which Perfetto draws as curves, for the allocation events of a trace, which it ignores.

    The counter of a CPU is the memory allocated since the trace began. The counter of an accelerator is all memory that
    PyTorch has allocated.
    """
    curves = []
    for event in events:
        if event.get("name") != "[memory]":
            continue
        args = event["args"]
        device = DeviceType(args["Device Type"]).name.lower()
        number = f":{args['Device Id']}" if args["Device Id"] >= 0 else ""
        curve = {"ph": "C", "name": f"memory {device}{number}", "pid": event["pid"], "ts": event["ts"]}
        curves.append({**curve, "args": {"MiB": args["Total Allocated"] / 2**20}})
    return curves
