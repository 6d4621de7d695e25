"""What a device could do at best."""

import torch

# Dense, in 16-bit formats with sums in fp32, by NVIDIA's data sheets; the first name that a device's own contains
# counts. Lightning's table gives figures with sparsity (H200, H100 NVL) or without tensor cores (RTX 4090, A6000).
_TFLOPS = {
    "B200": 2250.0,
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
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
    "V100-SXM2": 125.0,
    "T4": 65.0,
}


def peak_flops(device: torch.device, precision: str) -> float | None:
    """Floating-point operations a second of dense matrix products; None where it is not known.

    Args:
        precision: Lightning's `trainer.precision`.
    """
    if device.type != "cuda":
        return None
    name, has_bf16 = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)[0] >= 8
    found = next((1e12 * tflops for known, tflops in _TFLOPS.items() if known in name), None)
    if found is None or ("bf16" in precision and not has_bf16):
        return None
    if "16" in precision:
        return found
    # From Ampere on, TF32 is half as fast; fp32 itself, and fp64, are not listed.
    tf32 = precision.startswith("32") and has_bf16 and torch.get_float32_matmul_precision() != "highest"
    return found / 2 if tf32 else None
