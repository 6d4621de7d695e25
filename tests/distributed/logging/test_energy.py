"""Energy over ranks: each counts its GPU, and the first rank of a node the node's CPUs."""

import pytest

from engine.telemetry.energy_file import Joules, read_energy
from tests.conftest import TINY
from tests.support.faults.planted_energy import CPU, GPU


@pytest.mark.slow
def test_the_cpus_of_a_node_are_counted_once(team):
    planted = ["--trainer.callbacks+=tests.support.faults.planted_energy.PlantedEnergy"]
    limits = ["--trainer.max_steps", "3", "--trainer.limit_val_batches", "0"]
    pair = team("fit", *TINY, *limits, *planted, name="pair", processes=2).succeeded(120)
    of_reading = CPU + 2 * GPU
    kwh = [of_reading * reading / 3.6e6 for reading in (1, 2, 3)]
    assert list(pair.series("train/energy_kwh").values()) == pytest.approx(kwh)
    assert read_energy(pair.folder) == Joules(4 * CPU, 4 * 2 * GPU)
