"""Looks up the peak FLOPS of a device. Imports torch alone, so that benchmarks use it without Lightning."""

import re

import torch

_TFLOPS = {
    "B200": 2250.0,
    "GH200": 989.4,
    "H200": 989.4,
    "H100 PCIe": 756.5,
    "H100 NVL": 835.5,
    "H100": 989.4,
    "A100": 312.0,
    "L40S": 362.05,
    "L40": 181.05,
    "L4": 121.0,
    "A40": 149.7,
    "A6000": 154.8,
    "A10": 125.0,
    "GeForce RTX 4090": 165.2,
    "GeForce RTX 3090": 71.0,
    "V100-SXM2": 125.0,
    "T4": 65.0,
}
"""Dense TFLOPS in 16-bit formats with float32 accumulation, from NVIDIA's data sheets.

The first key whose words are in the device's name counts; an RTX A4000 is not an A40. Lightning's own table is not
used: it has numbers with sparsity (H200, H100 NVL) or without tensor cores (RTX 4090, A6000).
"""


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Return the peak floating-point operations per second of dense matrix products, or None if it is not known.

    Args:
        device: device that computes; a CPU's peak is not known.
        precision: Lightning's `trainer.precision`.
    """
    if device.type != "cuda":
        return None
    name, has_bf16 = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)[0] >= 8
    peak = next((1e12 * tflops for key, tflops in _TFLOPS.items() if _names(key, name)), None)
    if peak is None or ("bf16" in precision and not has_bf16):
        return None
    # "16-mixed", "bf16-mixed", "16-true", "bf16-true"
    if "16" in precision:
        return peak
    # TF32 (Ampere and later) runs at half the rate of 16-bit formats. The table has no numbers for float32 and float64.
    tf32 = precision.startswith("32") and has_bf16 and torch.get_float32_matmul_precision() != "highest"
    return peak / 2 if tf32 else None


def _names(key: str, device: str) -> bool:
    """Return whether a device's name has the words of a key, and is not of a variant with other numbers."""
    match = re.search(rf"\b{re.escape(key)}\b", device)
    return match is not None and not re.match(r" (Ti|D|Laptop)\b", device[match.end() :])
