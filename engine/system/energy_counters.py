"""Reads the energy counters of this machine.

CPUs: RAPL, as Linux's powercap interface shows it (kernel Documentation/power/powercap/powercap.rst); Intel's and AMD's
processors have it. Since Linux 5.10 only root can read it, unless the administrator grants more (CVE-2020-8694).
GPUs: NVML's total energy since the driver was loaded (Volta and newer), by the package nvidia-ml-py of the extra
`monitoring`.

A counter that does not exist or cannot be read is skipped; nothing is estimated in its place.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import torch

log = logging.getLogger("lockstep")

_POWERCAP = Path("/sys/class/powercap")


class CounterError(Exception):
    """A counter cannot be read; `EnergyMeter` then measures without it."""


class EnergyCounter(Protocol):
    """A counter that rises with the energy that a device uses."""

    def joules(self) -> float:
        """Return the joules since the previous call, or since the counter was created.

        Raises:
            CounterError: it can no longer be read.
        """


class RaplZone:
    """Counter of a CPU package or of its memory.

    The counter returns to 0 after `max_energy_range_uj`: on a busy server after 5 to 20 minutes, so that it must be
    read more often than that.

    Args:
        folder: the zone, such as /sys/class/powercap/intel-rapl:0.

    Raises:
        CounterError: the files cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._counter = folder / "energy_uj"
        self._range = _integer(folder / "max_energy_range_uj")
        self._last = _integer(self._counter)

    def joules(self) -> float:
        """See `EnergyCounter`."""
        now = _integer(self._counter)
        # Below the last value, the counter has returned to 0 in between.
        used = now - self._last + (self._range if now < self._last else 0)
        self._last = now
        return max(0, used) * 1e-6  # from microjoules


class NvmlCounter:
    """Counter of a GPU, of all programs on it.

    Args:
        nvml: the module pynvml.
        uuid: UUID of the GPU, as NVML writes it: `GPU-...`.

    Raises:
        CounterError: there is no driver, no such GPU, or the GPU has no counter.
    """

    def __init__(self, nvml: ModuleType | Any, uuid: str) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            # The GPU is found by UUID: CUDA_VISIBLE_DEVICES renumbers GPUs for torch, but not for NVML.
            self._device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            raise CounterError(f"NVML, {uuid}: {error}") from error
        self._last = self._millijoules()

    def joules(self) -> float:
        """See `EnergyCounter`."""
        before, self._last = self._last, self._millijoules()
        return max(0, self._last - before) * 1e-3  # less after the driver was loaded again

    def _millijoules(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device))
        except self._nvml.NVMLError as error:
            raise CounterError(f"NVML, energy: {error}") from error


class EnergyMeter:
    """Sum of several counters. A counter that fails is dropped; the joules that it has counted remain in the sum.

    Args:
        cpus: counters of the machine's CPUs.
        gpus: counters of GPUs.
    """

    def __init__(self, cpus: Sequence[EnergyCounter], gpus: Sequence[EnergyCounter]) -> None:
        self._cpus, self._gpus = list(cpus), list(gpus)

    @property
    def has_counters(self) -> bool:
        """Whether there is anything to read."""
        return bool(self._cpus or self._gpus)

    def read(self) -> tuple[float, float]:
        """Return the joules of the CPUs and of the GPUs since the previous call."""
        return _read(self._cpus), _read(self._gpus)


def cpu_counters(powercap: Path = _POWERCAP) -> list[RaplZone]:
    """Return the counters of all packages of this machine and of their memory.

    Zones within these (`core`, `uncore`) and around them (`psys`) count the same energy again, as do the zones of
    `intel-rapl-mmio`.
    """
    counters = []
    for folder in sorted(powercap.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text(encoding="utf-8").strip()
            # Other zones count energy that these count already.
            if name.startswith("package") or name == "dram":
                counters.append(RaplZone(folder))
        except (OSError, CounterError) as error:
            log.debug("energy of %s is not measured: %s", folder.name, error)
    return counters


def gpu_counters(device: torch.device) -> list[NvmlCounter]:
    """Return the counter of a GPU; none for another device, without nvidia-ml-py and without NVIDIA's driver."""
    if device.type != "cuda":
        return []
    try:
        import pynvml
    except ModuleNotFoundError:
        log.debug("energy of the GPU is not measured: pip install nvidia-ml-py")
        return []
    try:
        return [NvmlCounter(pynvml, f"GPU-{torch.cuda.get_device_properties(device).uuid}")]
    except CounterError as error:
        log.debug("energy of the GPU is not measured: %s", error)
        return []


def _read(counters: list[EnergyCounter]) -> float:
    total = 0.0
    # A copy, because a counter that fails is removed meanwhile.
    for counter in list(counters):
        try:
            total += counter.joules()
        except CounterError as error:
            counters.remove(counter)
            log.debug("an energy counter is no longer read: %s", error)
    return total


def _integer(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CounterError(str(error)) from error
