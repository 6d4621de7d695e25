"""What the device could do by its data sheet, in each format."""

import torch

from benchmarks.device.part import Setting
from benchmarks.device.reference import Format
from callbacks.peak_flops import peak_flops

_PRECISION = {"bf16": "bf16-mixed", "fp16": "16-mixed"}


def peak(setting: Setting, format: Format) -> float | None:
    """Dense operations a second; None where it is not known, as of fp32 without tensor cores."""
    if setting.peak_tflops is not None and format != "fp32":
        return setting.peak_tflops * 1e12 / (2 if format == "tf32" else 1)
    if format == "tf32":  # the table knows 16 bits; TF32 is half as fast from Ampere on
        sixteen = peak_flops(torch.device(setting.device), "bf16-mixed")
        return None if sixteen is None else sixteen / 2
    return peak_flops(torch.device(setting.device), _PRECISION[format]) if format in _PRECISION else None
