"""Tests energy counters on planted files of the powercap interface and a planted NVML."""

import sys
from types import SimpleNamespace

import pynvml
import pytest
import torch

from engine.system import energy_counters
from engine.system.energy_counters import CounterError, EnergyMeter, NvmlCounter, RaplZone, cpu_counters, gpu_counters

RANGE = 262143328850  # uJ, of a Xeon


def plant(powercap, zone, name, microjoules, largest=RANGE):
    folder = powercap / zone
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", largest)):
        (folder / file).write_text(f"{content}\n")
    return folder


def test_each_joule_is_counted_once(tmp_path):
    """Packages and their memory; not the parts of a package, the platform around it, or the second interface."""
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    for zone, name in zones.items():
        plant(tmp_path, zone, name, 1_000_000)
    meter = EnergyMeter(cpu_counters(tmp_path), [])
    assert meter.read() == (0, 0), "from the creation of the counters on"
    for zone, name in zones.items():
        plant(tmp_path, zone, name, 3_000_000)
    assert meter.read() == (pytest.approx(3 * 2), 0)
    assert meter.read() == (0, 0)


def test_a_counter_that_has_returned_to_zero(tmp_path):
    folder = plant(tmp_path, "intel-rapl:0", "package-0", RANGE - 2_000_000)
    zone = RaplZone(folder)
    plant(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    assert zone.joules() == pytest.approx(7)
    plant(tmp_path, "intel-rapl:0", "package-0", 5_500_000)
    assert zone.joules() == pytest.approx(0.5)


def test_a_counter_that_only_root_may_read_is_left_out(tmp_path, monkeypatch):
    denied, readable = (plant(tmp_path, f"intel-rapl:{zone}", f"package-{zone}", 0) for zone in (0, 1))
    read = energy_counters.Path.read_text

    def as_user(path, **options):
        if path == denied / "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, **options)

    monkeypatch.setattr(energy_counters.Path, "read_text", as_user)  # the tests may run as root
    meter = EnergyMeter(cpu_counters(tmp_path), [])
    assert meter.has_counters
    for folder in (denied, readable):
        plant(tmp_path, folder.name, "package", 1_000_000)
    assert meter.read() == (1, 0)


@pytest.mark.parametrize("content", ["", "many\n"])
def test_a_file_without_a_number_is_no_counter(tmp_path, content):
    folder = plant(tmp_path, "intel-rapl:0", "package-0", 0)
    (folder / "max_energy_range_uj").write_text(content)
    assert cpu_counters(tmp_path) == []


def test_a_machine_without_counters_reads_no_energy(tmp_path):
    meter = EnergyMeter(cpu_counters(tmp_path / "powercap"), gpu_counters(torch.device("cpu")))
    assert not meter.has_counters
    assert meter.read() == (0, 0)


def test_a_counter_that_disappears_keeps_what_it_has_counted(tmp_path):
    folders = [plant(tmp_path, f"intel-rapl:{zone}", f"package-{zone}", 0) for zone in (0, 1)]
    meter = EnergyMeter(cpu_counters(tmp_path), [])
    for folder in folders:
        plant(tmp_path, folder.name, "package", 2_000_000)
    assert meter.read() == (4, 0)
    (folders[0] / "energy_uj").unlink()
    plant(tmp_path, folders[1].name, "package", 3_000_000)
    assert meter.read() == (1, 0)
    assert meter.has_counters


class PlantedNvml:
    """pynvml's functions with a driver that knows one GPU."""

    NVMLError = pynvml.NVMLError

    def __init__(self):
        self.millijoules = 5_000
        self.fails = False

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "GPU-1":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, device):
        if self.fails:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.millijoules


def test_a_gpus_counter_may_restart_or_fail(monkeypatch):
    nvml = PlantedNvml()
    meter = EnergyMeter([], [NvmlCounter(nvml, "GPU-1")])
    nvml.millijoules += 1_500
    assert meter.read() == (0, 1.5)
    nvml.millijoules = 100  # the driver was loaded again
    assert meter.read() == (0, 0)
    nvml.millijoules = 600
    assert meter.read() == (0, 0.5)
    nvml.fails = True
    assert meter.read() == (0, 0)
    assert not meter.has_counters


@pytest.mark.parametrize(("uuid", "fails"), [("GPU-2", False), ("GPU-1", True)])
def test_a_gpu_without_a_counter_is_an_error(uuid, fails):
    nvml = PlantedNvml()
    nvml.fails = fails
    with pytest.raises(CounterError, match="NVML"):
        NvmlCounter(nvml, uuid)


def test_a_machine_without_nvidias_driver_has_no_gpu_counters(monkeypatch):
    def no_library():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1"))
    monkeypatch.setattr(pynvml, "nvmlInit", no_library)
    assert gpu_counters(torch.device("cuda")) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_counters(torch.device("cuda")) == [], "nor without the package"
