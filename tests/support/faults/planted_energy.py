"""Plants energy counters that rise by the same energy with each reading."""

from lightning.pytorch import Callback
from typing_extensions import override

from callbacks.performance import energy_monitor

CPU, GPU = 70.0, 15.0
"""Joules of each reading."""


class Rising:
    """A counter."""

    def __init__(self, joules: float) -> None:
        self.readings, self._joules = 0, joules

    def joules(self) -> float:
        """Return the joules since the previous reading."""
        self.readings += 1
        return self._joules


class PlantedEnergy(Callback):
    """Each process finds the counters of its machine's CPUs and of its own GPU."""

    @override
    def setup(self, *_: object, **__: object) -> None:
        energy_monitor.cpu_counters = lambda: [Rising(CPU)]
        energy_monitor.gpu_counters = lambda device: [Rising(GPU)]
