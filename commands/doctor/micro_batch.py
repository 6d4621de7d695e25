"""What is to be said of a micro-batch that was computed, or could not be."""

from collections.abc import Sequence

import torch

from commands.doctor.finding import Finding
from commands.doctor.trial import BeforeTraining, Tried
from engine import host_memory
from engine.batch_plan import BatchPlan
from engine.out_of_memory import is_out_of_memory

_TIGHT = 0.9
"""Of a device's memory."""


def computed(tried: Tried, batch: BatchPlan, beside: int, asked: int) -> Finding:
    """
    Args:
        beside: processes of a node.
        asked: samples of the config's micro-batch; `trainer.auto_micro_batch` may have come to fewer.
    """
    on_gpu = tried.device.type == "cuda"
    there = torch.cuda.get_device_properties(tried.device).total_memory if on_gpu else host_memory.limit().size
    peak = tried.peak if on_gpu else tried.peak * beside
    each = f" for each of {beside} processes" * (beside > 1 and not on_gpu)
    words = (
        f"{batch.micro_batch_size} samples on {tried.device}: loss {tried.loss:.4g}, {tried.seconds * 1e3:.0f} ms, "
        f"peak {tried.peak / 2**30:.2f} GiB{each} of {there / 2**30:.1f} GiB; {tried.gradients / 2**20:.1f} MiB of "
        "gradients"
    )
    if batch.micro_batch_size < asked:
        words += f"; {asked} do not fit: trainer.auto_micro_batch comes to about these"
    if tried.loss != tried.loss or abs(tried.loss) == float("inf"):
        why = "the first step would be left out, and the training would stop soon"
        return Finding("micro batch", "fail", words, why, "--config configs/overlays/debug.yaml finds where it begins")
    if peak > _TIGHT * there:
        why = "a longer batch, or memory in pieces, and it no longer fits"
        return Finding("micro batch", "warn", words, why, _smaller(batch.micro_batch_size))
    return Finding("micro batch", "ok", words)


def broken(error: Exception, size: int, beside: int, divides: bool = True, savers: Sequence[str] = ()) -> Finding:
    """
    Args:
        error: that the step raised.
        size: samples of the micro-batch.
        beside: processes of a node.
        divides: whether the model computes smaller ones as well.
        savers: options with which it needs less memory.
    """
    words = f"{size} samples: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if is_out_of_memory(error):
        if not torch.cuda.is_initialized():
            most, source = host_memory.limit()
            words += f"; {most / 2**30:.2f} GiB ({source})" + f" for {beside} processes" * (beside > 1)
        remedy = savers[0] if savers and (size == 1 or not divides) else _smaller(size)
        return Finding("micro batch", "fail", words, "memory runs out in the first step of a training", remedy)
    remedy = "LOCKSTEP_DEBUG=1 python train.py fit with the same config shows where"
    return Finding("micro batch", "fail", words, "a training ends in its first step", remedy)


def before_training(error: BeforeTraining, prepare: str) -> Finding:
    """
    Args:
        prepare: the command that makes the data ready.
    """
    if error.part == "model":
        why, remedy = "a training ends where it makes its model", "correct model.init_args of the config"
        return Finding("micro batch", "fail", f"the model cannot be made: {error}", why, remedy)
    shows = "LOCKSTEP_DEBUG=1 python train.py fit with the same config shows where"
    remedy = prepare if isinstance(error.__cause__, OSError) else shows
    return Finding("data", "fail", str(error), "a training ends where it opens its data", remedy)


def not_tried(why_not: str, remedy: str) -> Finding:
    """
    Args:
        why_not: "data are to be prepared first".
        remedy: what mends that.
    """
    why = "whether a step runs, and fits into the memory, is not known"
    return Finding("micro batch", "warn", f"not tried: {why_not}", why, remedy)


def _smaller(size: int) -> str:
    if size == 1:
        return "--config configs/overlays/low_memory.yaml"
    return f"--data.init_args.micro_batch_size {size // 2}  # the global batch stays as it is"
