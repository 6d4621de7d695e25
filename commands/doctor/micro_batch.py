"""What is to be said of a micro-batch that was computed, or could not be."""

import psutil
import torch

from commands.doctor.finding import Finding
from commands.doctor.trial import Tried
from engine.batch_plan import BatchPlan

_TIGHT = 0.9
"""Of a device's memory."""


def computed(tried: Tried, batch: BatchPlan, beside: int) -> Finding:
    """
    Args:
        beside: processes of a node.
    """
    on_gpu = tried.device.type == "cuda"
    there = torch.cuda.get_device_properties(tried.device).total_memory if on_gpu else psutil.virtual_memory().total
    peak = tried.peak if on_gpu else tried.peak * beside
    each = f" for each of {beside} processes" * (beside > 1 and not on_gpu)
    words = (
        f"{batch.micro_batch_size} samples on {tried.device}: loss {tried.loss:.4g}, {tried.seconds * 1e3:.0f} ms, "
        f"peak {tried.peak / 2**30:.2f} GiB{each} of {there / 2**30:.1f} GiB; {tried.gradients / 2**20:.1f} MiB of "
        "gradients"
    )
    if tried.loss != tried.loss or abs(tried.loss) == float("inf"):
        why = "the first step would be left out, and the training would stop soon"
        return Finding("micro batch", "fail", words, why, "--config configs/overlays/debug.yaml finds where it begins")
    if peak > _TIGHT * there:
        why = "a longer batch, or memory in pieces, and it no longer fits"
        return Finding("micro batch", "warn", words, why, _smaller(batch.micro_batch_size))
    return Finding("micro batch", "ok", words)


def broken(error: Exception, size: int) -> Finding:
    """
    Args:
        error: that the step raised.
        size: samples of the micro-batch.
    """
    words = f"{size} samples: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error):
        return Finding("micro batch", "fail", words, "a training ends in its first step", _smaller(size))
    remedy = "LOCKSTEP_DEBUG=1 python train.py fit with the same config shows where"
    return Finding("micro batch", "fail", words, "a training ends in its first step", remedy)


def _smaller(size: int) -> str:
    if size == 1:
        return "--config configs/overlays/low_memory.yaml"
    return f"--data.init_args.micro_batch_size {size // 2}  # the global batch stays as it is"
