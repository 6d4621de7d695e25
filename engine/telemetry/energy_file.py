"""Keeps the energy of all starts of a run in `energy.json`.

A checkpoint does not know of the steps after it that a kill has lost; this file does.
"""

import json
import logging
import math
import os
from pathlib import Path
from typing import NamedTuple

from engine.io.atomic_file import temp_path

log = logging.getLogger("lockstep")

FILE = "energy.json"

JOULES_PER_KWH = 3.6e6


class Joules(NamedTuple):
    """Energy by device."""

    cpu: float = 0.0
    gpu: float = 0.0

    def plus(self, cpu: float, gpu: float) -> "Joules":
        """Return the sum with further joules."""
        return Joules(self.cpu + cpu, self.gpu + gpu)

    @property
    def kwh(self) -> float:
        """Energy of all devices in kilowatt hours."""
        return (self.cpu + self.gpu) / JOULES_PER_KWH


def read_energy(folder: Path) -> Joules | None:
    """Return the energy of a run; None if it was not measured, or the file is malformed, as after a full disk."""
    try:
        content = json.loads((folder / FILE).read_bytes())
        energy = Joules(float(content["cpu_joules"]), float(content["gpu_joules"]))
    except (OSError, ValueError, TypeError, LookupError, RecursionError):
        return None
    return energy if all(math.isfinite(value) and value >= 0 for value in energy) else None


def write_energy(folder: Path, energy: Joules) -> None:
    """Replace energy.json. A failure is logged at level debug: a training is worth more than its energy's record."""
    path = folder / FILE
    new = temp_path(path)
    content = {"cpu_joules": round(energy.cpu, 3), "gpu_joules": round(energy.gpu, 3)}
    try:
        # The file is not flushed to the disk, because it is written in every logged step.
        new.write_text(json.dumps(content) + "\n", encoding="utf-8")
        os.replace(new, path)
    except OSError as error:
        log.debug("%s is not written: %s", path, error)
