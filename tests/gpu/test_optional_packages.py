"""Without the packages of extras, tests that need them are skipped and the others run; wheels.sh carries them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import closing
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.system.extras import MODULES, missing_modules
from tests.conftest import REPOSITORY
from tests.support.device.optional_packages import hide
from tests.support.device.workplace import Workplace
from tests.support.ranks.team import ForkServer

EXTRAS = ("images", "language", "documents", "bits", "liger")
OPTIONAL = {module for extra in EXTRAS for module in MODULES[extra]} - {"markdown_it"}  # rich imports it
NEED_EXTRAS = [
    "test_few_bits.py",
    "test_language_model.py",
    "test_processes.py::test_shards_of_one_process_train_as_a_whole_model_and_resume",
    "test_quickstarts.py",
    "test_throughput.py::test_time_operations_and_their_share_of_the_peak_are_measured",
]
ON_THE_MACHINE = {"torch", "lightning", "numpy", "triton", "setuptools"}
"""Packages of a machine with torch and Lightning that wheels.sh does not carry."""


@pytest.fixture
def without_extras(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", hide(tmp_path, OPTIONAL))


@pytest.mark.slow
@pytest.mark.usefixtures("without_extras")
def test_a_fork_server_answers_without_optional_packages(tmp_path):
    with closing(ForkServer()) as forge:
        workplace = Workplace(forge, tmp_path)
        assert workplace.can_use("cpu")
        assert "transformers" in workplace.call(missing_modules, "language")


@pytest.mark.slow
@pytest.mark.usefixtures("without_extras")
def test_tests_that_need_optional_packages_are_skipped():
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-rs", "-p", "no:cacheprovider"]
    command += ["-k", "not recommender"]
    done = subprocess.run(
        [*command, *(f"tests/gpu/{name}" for name in NEED_EXTRAS)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert re.search(r"^\d+ skipped, \d+ deselected in", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not installed here" in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("without_extras")
def test_other_tests_are_collected_and_run():
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    for options, outcome in ((["--collect-only"], r"^\d+ tests collected"), (["-k", "interpreted or fused"], "passed")):
        done = subprocess.run([*command, *options], cwd=REPOSITORY, capture_output=True, text=True, timeout=170)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(outcome, done.stdout, re.MULTILINE), done.stdout


def test_wheels_has_all_requirements_of_the_families():
    """As installed here, besides what other systems and versions of Python need."""
    config = ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    lines = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in EXTRAS)]
    direct = [line for text in lines for line in text.splitlines() if re.match(r"\w", line)]
    needed = {name for line in (*direct, "pytest", "pytest-timeout", "hypothesis") for name in _closure(line, set())}
    script = Path(__file__).with_name("wheels.sh").read_text(encoding="utf-8")
    carried = {canonicalize_name(name) for text in re.findall(r"packages=['\"](.*?)['\"]", script, re.S)
               for name in text.split()}  # fmt: skip
    assert needed - carried == set()


def _closure(line: str, known: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """Yield the names of a requirement and of all that it requires, without those of `ON_THE_MACHINE`."""
    requirement = Requirement(line)
    name, extras = canonicalize_name(requirement.name), frozenset(requirement.extras)
    if name in ON_THE_MACHINE or (name, extras) in known:
        return
    known.add((name, extras))
    yield name
    try:
        further = map(Requirement, requires(name) or [])
    except PackageNotFoundError:  # of another system, or not installed
        return
    for each in further:
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield from _closure(str(each), known)
