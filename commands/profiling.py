"""`--trainer.profiler simple`, `advanced` or `pytorch`, written into the run's folder.

Lightning prints the first two among everything else, and leaves the third's traces where it was started.
"""

import json
import logging
from pathlib import Path
from typing import Any

from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEventAvg
from torch.profiler import profile, schedule

log = logging.getLogger("lockstep")

FOLDER = "profile"

STEPS = 3
"""Of training, and of each evaluation, that `pytorch` traces, after two that are not like the others."""

DEAREST = 10
"""Operators that are told at the end."""


def profiler_in(folder: Path, given: Profiler | str | None) -> Profiler | str | None:
    """
    Args:
        folder: of the run.
        given: `trainer.profiler`; one that is described in full, and one that Lightning knows by another name, stay.
    """
    if given == "simple":
        return SimpleProfiler(folder / FOLDER, given)
    if given == "advanced":
        return AdvancedProfiler(folder / FOLDER, given)
    if given == "pytorch":
        return TracingProfiler(folder / FOLDER, given)
    return given


class TracingProfiler(PyTorchProfiler):
    """PyTorch's profiler: a trace for each kind of step, and at the end the operators that took the most time.

    A trace, `profile/training_step-process-0.pt.trace.json`, opens in https://ui.perfetto.dev and has the course
    of the memory as a curve above the operators. Lightning's own table is of the last trace alone, which may be the
    validation's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        # The same schedule without being named is given up for good, and all steps are kept in memory, where the
        # validation has fewer than five batches.
        steps = schedule(wait=1, warmup=1, active=STEPS)
        super().__init__(folder, name, schedule=steps, profile_memory=True, on_trace_ready=self._keep)
        self._step = "steps"
        self._operators: dict[str, list[FunctionEventAvg]] = {}  # by kind of step, the dearest first

    def stop(self, action_name: str) -> None:
        if any(action_name.endswith(function) for function in self.STEP_FUNCTIONS):
            self._step = action_name.split(".")[-1]
        super().stop(action_name)

    def _keep(self, profiler: profile) -> None:
        path = Path(self.dirpath or ".") / f"{self._step}-process-{rank_zero_only.rank}.pt.trace.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
        trace["traceEvents"] += memory_curves(trace["traceEvents"])
        path.write_text(json.dumps(trace), encoding="utf-8")
        self._operators[self._step] = dearest(list(profiler.key_averages()))

    def summary(self) -> str:
        self._delete_profilers()  # a trace that is not finished is kept now
        return self._stats_to_str({step: table(found, len(found)) for step, found in self._operators.items()})

    def describe(self) -> None:
        super().describe()
        for step in sorted(self._operators, key=lambda step: step != "training_step")[:1]:
            shown = table(self._operators[step], DEAREST)
            log.info("the %d dearest operators of %s, all steps of its trace together:\n%s", DEAREST, step, shown)
        if self._operators:
            log.info("traces for https://ui.perfetto.dev and tables of all operators: %s", self.dirpath)
        else:
            log.warning("WARNING: nothing was traced: that takes %d steps or more", 2 + STEPS)


def dearest(events: list[FunctionEventAvg]) -> list[FunctionEventAvg]:
    """Operators by the time that they took themselves: on the accelerator where one was used, else on the CPU.

    Left out are what PyTorch and Lightning put around operators (steps, modules, hooks), and the accelerator's
    kernels, whose time is that of the operators that launched them.
    """
    operators = [event for event in events if event.device_type == DeviceType.CPU and not event.is_user_annotation]
    operators.sort(key=lambda event: (event.self_device_time_total, event.self_cpu_time_total), reverse=True)
    return operators


def table(operators: list[FunctionEventAvg], rows: int) -> str:
    """The first operators, a line each: times in ms and memory in MiB of the traced steps, without what is inside."""
    on_device = any(event.self_device_time_total for event in operators)

    def time_of(event: FunctionEventAvg) -> float:
        return event.self_device_time_total if on_device else event.self_cpu_time_total

    total = sum(map(time_of, operators)) or 1.0
    lines = [f"{'operator':<48} {'calls':>7} {'device ms' if on_device else 'CPU ms':>10} {'share':>7} {'MiB':>9}"]
    for event in operators[:rows]:
        memory = event.self_device_memory_usage if on_device else event.self_cpu_memory_usage
        lines.append(
            f"{event.key[:48]:<48} {event.count:>7} {time_of(event) / 1e3:>10.2f} {time_of(event) / total:>7.1%} "
            f"{memory / 2**20:>9.1f}"
        )
    return "\n".join(lines)


def memory_curves(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counters, which Perfetto draws as curves, from a trace's notes of single allocations, which it does not.

    Of a CPU what was allocated since the trace began; of an accelerator all that PyTorch has allocated there.
    """
    curves = []
    for event in events:
        if event.get("name") != "[memory]":
            continue
        facts = event["args"]
        device = DeviceType(facts["Device Type"]).name.lower()
        number = f":{facts['Device Id']}" if facts["Device Id"] >= 0 else ""
        curve = {"ph": "C", "name": f"memory {device}{number}", "pid": event["pid"], "ts": event["ts"]}
        curves.append({**curve, "args": {"MiB": facts["Total Allocated"] / 2**20}})
    return curves
