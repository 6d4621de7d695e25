"""The device of each test, the order of the files by value, the time limit, and the report."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch

from tests.distributed.conftest import fork_server
from tests.support.device.report import NAME, DeviceReport
from tests.support.device.workplace import Workplace
from tests.support.ranks.fresh_processes import FreshProcesses
from tests.support.ranks.team import ForkServer, Processes

ORDER = (
    "test_quickstarts.py",
    "test_resume.py",
    "test_guards.py",
    "test_memory.py",
    "test_fused_paths.py",
    "test_compiled_step.py",
    "test_processes.py",
    "test_few_bits.py",
    "test_throughput.py",
    "test_device_waits.py",
    "test_language_model.py",
    "test_doctor.py",
    "test_optional_packages.py",
    "test_selection.py",
)
"""Files in the order in which they run on a GPU: what is lost least when the time is over comes last."""

MINUTES = float(os.environ.get("GPU_MINUTES", "9"))
ENDS = time.monotonic() + 60 * MINUTES


def asks_for_gpu(expression: str) -> bool:
    """Return whether `-m EXPRESSION` selects the tests of a GPU."""
    return re.search(r"\bgpu\b", expression) is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its device: `-m gpu` runs it on the GPU, everything else on the CPU."""
    if "device" in metafunc.fixturenames:
        on_gpu = pytest.param("cuda", marks=pytest.mark.gpu)
        chosen = on_gpu if asks_for_gpu(metafunc.config.option.markexpr) else "cpu"
        metafunc.parametrize("device", [chosen], indirect=True, scope="session")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a GPU, run the most valuable files first, and report into the folder GPU_REPORT.

    On a CPU, skip the cases that a sibling stands for.
    """
    if not asks_for_gpu(config.option.markexpr):
        items[:] = [item for item in items if not item.get_closest_marker("no_cpu_form")]
        return
    items.sort(key=lambda item: ORDER.index(item.path.name) if item.path.name in ORDER else len(ORDER))
    if folder := os.environ.get("GPU_REPORT"):
        config.pluginmanager.register(DeviceReport(Path(folder) / NAME, describe_environment()))


def describe_environment() -> dict[str, object]:
    """Return device, driver, versions and commit, as the benchmark records them."""
    from benchmarks.device import machine
    from benchmarks.device.part import Setting

    return machine.describe_environment(Setting("cuda" if torch.cuda.is_available() else "cpu", tiny=True, repeats=1))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """`cuda` or `cpu`. Skips the test where it asks for a GPU and there is none."""
    chosen: str = request.param
    if chosen == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no CUDA device")
    return chosen


NOT_RUN = pytest.StashKey[int]()


@pytest.fixture(autouse=True)
def _within_the_time(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu") and time.monotonic() > ENDS:
        request.config.stash[NOT_RUN] = request.config.stash.get(NOT_RUN, 0) + 1
        pytest.skip(f"not run: the {MINUTES:g} minutes of GPU_MINUTES are over")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that has not run all tests."""
    if session.config.stash.get(NOT_RUN, 0):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def processes(device: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """What starts processes: a fork server, or fresh ones if a forked process cannot use the GPU."""
    if device == "cpu":
        yield fork_server()
        return
    with closing(ForkServer(gpus=True)) as forge:
        if Workplace(forge, tmp_path_factory.mktemp("fork")).can_use(device):
            yield forge
            return
    yield FreshProcesses()


@pytest.fixture
def workplace(device: str, processes: Processes, tmp_path: Path) -> Workplace:
    """A folder of the test in which trainings of its device run."""
    return Workplace(processes, tmp_path, _ends(device))


@pytest.fixture(scope="module")
def shared_workplace(device: str, processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A folder that the tests of a file share, for trainings that several of them read."""
    return Workplace(processes, tmp_path_factory.mktemp("shared"), _ends(device))


def _ends(device: str) -> float:
    return ENDS if device == "cuda" else float("inf")
