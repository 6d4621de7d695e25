"""Probes the first step of a training with the micro-batch of the config, or the largest that fits."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from callbacks.performance.auto_micro_batch import free_cached_memory, reports_oom
from commands.doctor.check import Finding
from commands.doctor.training.load_config import instantiate_part, is_sharded_strategy, single_micro_batch
from commands.doctor.training.loader_throughput import planned_workers, throughput_finding
from commands.doctor.training.probe_step import BeforeTraining, ProbeResult, is_on_gpu, run_probe_step
from engine.data.batch_plan import BatchPlan
from engine.io.error_line import first_line_with_type
from engine.system import host_memory
from engine.system.byte_size import format_gib
from engine.system.installation import PROGRAM
from engine.system.oom import is_oom_error

if TYPE_CHECKING:
    from jsonargparse import Namespace

_NEARLY_FULL = 0.9
"""Share of a device's memory above which the peak is a warning."""


class ProbeOutcome(NamedTuple):
    """Findings of the first step, and what later checks need of it."""

    findings: list[Finding]
    batch: BatchPlan
    """Batch that was probed last."""
    probe: ProbeResult | None = None
    """Measurements; None if the step failed."""


def probe_micro_batch(
    config: "Namespace", batch: BatchPlan, ranks_per_node: int, prepare_command: str, directory: Path
) -> ProbeOutcome:
    """Compute a micro-batch, and halve it until it fits if `trainer.auto_micro_batch` allows it.

    Args:
        config: config of the training.
        batch: batch plan of the config.
        ranks_per_node: ranks that share the memory of a node.
        prepare_command: command that prepares the data, for the remedy.
        directory: temporary directory for files that the model writes.
    """
    requested = batch.micro_batch_size
    while True:
        result = _probe(config, batch, ranks_per_node, prepare_command, directory)
        if isinstance(result, Finding):
            return ProbeOutcome([result], batch)
        # The next attempt must not count the memory that this attempt has left.
        free_cached_memory(torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))
        if isinstance(result, ProbeResult):
            break
        batch = result  # half the micro-batch, which is tried next
    findings = []
    if result.samples is not None:
        findings.append(Finding("data", "ok", f"{result.samples:,} samples to train on"))
    why, remedy = "the program warned of it in the first steps", "see docs/troubleshooting.md"
    findings += [Finding("micro batch", "warn", warning, why, remedy) for warning in result.warnings]
    findings.append(_report_measurement(result, batch, ranks_per_node, requested))
    if result.loading is not None:
        on_gpu, setting = result.device.type != "cpu", config.data.init_args.get("num_workers", 0)
        workers = planned_workers(setting, ranks_per_node, on_gpu, result.in_memory)
        sizes = result.loading, batch.micro_batch_size, result.seconds
        findings.append(throughput_finding(*sizes, result.device, workers, ranks_per_node))
    return ProbeOutcome(findings, batch, result)


def not_probed(reason: str, remedy: str) -> Finding:
    """Report that no micro-batch was computed.

    Args:
        reason: as in "data are to be prepared first".
        remedy: what removes the reason.
    """
    why = "whether a step runs, and fits into the memory, is not known"
    return Finding("micro batch", "warn", f"not run: {reason}", why, remedy)


def _probe(
    config: "Namespace", batch: BatchPlan, ranks_per_node: int, prepare_command: str, directory: Path
) -> "ProbeResult | BatchPlan | Finding":
    """Return the measurements, the smaller batch to try next, or what is wrong."""
    single = single_micro_batch(config, batch.micro_batch_size)
    model, data = instantiate_part(single, "model"), instantiate_part(single, "data")
    auto = config.trainer.auto_micro_batch
    device = torch.device("cuda" if is_on_gpu(config.trainer.accelerator) else "cpu")
    divides = (
        model.supports_grad_accumulation and not is_sharded_strategy(config.trainer.strategy) and reports_oom(device)
    )
    if auto is True and not divides:
        found = "trainer.auto_micro_batch: not possible on a CPU, with sharded weights or a loss of the whole batch"
        why = "training will fail at startup"
        return Finding("micro batch", "fail", found, why, "--trainer.auto_micro_batch if_possible")
    seed, trainable_only = int(config.seed_everything), config.checkpoints.trainable_only
    try:
        return run_probe_step(
            model=model,
            data=data,
            settings=single.trainer,
            seed=seed,
            trainable_only=trainable_only,
            ranks_per_node=ranks_per_node,
            directory=directory,
        )
    except BeforeTraining as error:
        return _not_built(error, prepare_command)
    except Exception as error:  # any error of the user's model is a finding, never the end of the doctor
        smaller = batch.halved() if auto and divides else None
        if smaller is not None and is_oom_error(error):
            return smaller
        savers = [option for option, _ in model.memory_saving_options()]
        return _report_failure(error, batch.micro_batch_size, ranks_per_node, model.supports_grad_accumulation, savers)


def _report_measurement(probe: ProbeResult, batch: BatchPlan, ranks_per_node: int, requested: int) -> Finding:
    """Report time and memory of a micro-batch.

    Args:
        probe: measurements.
        batch: batch that was probed.
        ranks_per_node: ranks that share the memory of a node.
        requested: samples of the config's micro-batch; `trainer.auto_micro_batch` may have halved it.
    """
    on_gpu = probe.device.type == "cuda"
    total = torch.cuda.get_device_properties(probe.device).total_memory if on_gpu else host_memory.memory_limit().size
    # Every rank has a GPU of its own, but all ranks of a node share the memory of the host.
    peak = probe.peak if on_gpu else probe.peak * ranks_per_node
    each = f" for each of {ranks_per_node} processes" * (ranks_per_node > 1 and not on_gpu)
    found = (
        f"{batch.micro_batch_size} samples on {probe.device}: loss {probe.loss:.4g}, {probe.seconds * 1e3:.0f} ms, "
        f"peak {format_gib(probe.peak)}{each} of {format_gib(total)}; {probe.gradients / 2**20:.1f} MiB of "
        "gradients"
    )
    if batch.micro_batch_size < requested:
        found += f"; {requested} do not fit: trainer.auto_micro_batch chooses about this size"
    if not math.isfinite(probe.loss):
        why = "the first step would be skipped, and the training would stop soon"
        remedy = "--config configs/overlays/debug.yaml names the operation that makes it"
        return Finding("micro batch", "fail", found, why, remedy)
    if peak > _NEARLY_FULL * total:
        why = "a longer batch or fragmented memory exceeds it"
        return Finding("micro batch", "warn", found, why, _smaller(batch.micro_batch_size))
    return Finding("micro batch", "ok", found)


def _report_failure(error: Exception, size: int, ranks_per_node: int, divides: bool, savers: Sequence[str]) -> Finding:
    """Report why a micro-batch could not be computed.

    Args:
        error: error of the step.
        size: samples of the micro-batch.
        ranks_per_node: ranks that share the memory of a node.
        divides: whether the model supports smaller micro-batches.
        savers: options that reduce the memory.
    """
    found = f"{size} samples: {first_line_with_type(error)}"
    if is_oom_error(error):
        if not torch.cuda.is_initialized():
            limit, source = host_memory.memory_limit()
            found += f"; {format_gib(limit)} ({source})" + f" for {ranks_per_node} processes" * (ranks_per_node > 1)
        remedy = savers[0] if savers and (size == 1 or not divides) else _smaller(size)
        return Finding("micro batch", "fail", found, "memory runs out in the first step of a training", remedy)
    remedy = f"LOCKSTEP_DEBUG=1 {PROGRAM} fit with the same config shows the traceback"
    return Finding("micro batch", "fail", found, "a training ends in its first step", remedy)


def _not_built(error: BeforeTraining, prepare_command: str) -> Finding:
    """Report that the model or the data could not be created."""
    if error.part == "model":
        why, remedy = "a training ends where it creates its model", "correct model.init_args of the config"
        return Finding("micro batch", "fail", f"the model cannot be created: {error}", why, remedy)
    traceback = f"LOCKSTEP_DEBUG=1 {PROGRAM} fit with the same config shows the traceback"
    remedy = prepare_command if isinstance(error.__cause__, OSError) else traceback
    return Finding("data", "fail", str(error), "a training ends where it opens its data", remedy)


def _smaller(size: int) -> str:
    if size == 1:
        return "--config configs/overlays/low_memory.yaml"
    return f"--data.init_args.micro_batch_size {size // 2}  # the global batch stays as it is"
