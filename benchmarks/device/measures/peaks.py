"""Looks up the peak rates of the device in its data sheet, in each format."""

import torch

from benchmarks.device.measures.reference import Format
from benchmarks.device.part import Setting
from callbacks.performance.peak_flops import peak_flops

_PRECISION = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


def peak(setting: Setting, format: Format) -> float | None:
    """Return dense operations per second; None if unknown, as for fp32 without tensor cores."""
    # The option is the dense peak in 16 bits; TF32 has half of it, and fp32 without tensor cores another rate.
    if setting.peak_tflops is not None and format != "fp32":
        return setting.peak_tflops * 1e12 / (2 if format == "tf32" else 1)
    if format == "tf32":  # the table has 16 bits; TF32 has half the rate from Ampere on
        sixteen = peak_flops(torch.device(setting.device), "bf16-mixed")
        return None if sixteen is None else sixteen / 2
    return peak_flops(torch.device(setting.device), _PRECISION[format]) if format in _PRECISION else None
