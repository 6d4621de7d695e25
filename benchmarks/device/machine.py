"""Describes the machine of the measurements."""

import subprocess
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks import environment as general
from benchmarks.device.part import Setting
from engine.system.installation import package_version

_PACKAGES = ("lightning", "transformers", "peft", "triton")


def describe_environment(setting: Setting) -> dict[str, Any]:
    """Return device, driver and versions, besides what every benchmark records."""
    name, memory = _device() if setting.cuda else ("the CPU, tiny sizes: meaningless numbers", None)
    return {
        **general.describe_environment(setting.repeats),
        "device": name,
        "memory_gb": memory,
        "driver": _driver() if setting.cuda else None,
        "cuda": torch.version.cuda,
        "packages": {name: found for name in _PACKAGES if (found := package_version(name))},
    }


def closing_line(environment: dict[str, Any]) -> str:
    """Return a line that describes the measurements above it and their machine."""
    packages = ", ".join(f"{name} {found}" for name, found in environment["packages"].items())
    return (
        f"\nMedian (smallest to largest) of {environment['repeats']} turns. {environment['device']}, "
        f"driver {environment['driver']}, CUDA {environment['cuda']}; {environment['processor']}, "
        f"{environment['cores']} cores, load {environment['load'][0]:.1f} at the start; Python "
        f"{environment['python']}, torch {environment['torch']}, {packages}; commit {environment['commit']}"
    )


def _device() -> tuple[str, float]:
    """Query the device in a separate process, because a CUDA context in this process would occupy device memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(_name_and_memory).result()


def _name_and_memory() -> tuple[str, float]:
    found = torch.cuda.get_device_properties(0)
    return found.name, found.total_memory / 1e9


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    return "unknown"
