"""Checks the Dockerfile: its content, its base, and that two builds have the same packages. Builds no image."""

import configparser
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from callbacks.logging import run_log
from tests.conftest import REPOSITORY

DOCKERFILE = REPOSITORY / "deploy/kubernetes/Dockerfile"
# Joins continued lines.
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
STAGES = [number for number, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM"]
(EXTRAS,) = (rest.removeprefix("EXTRAS=").split(",") for word, rest in INSTRUCTIONS if rest.startswith("EXTRAS="))
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint for this system")
def test_hadolint_passes():
    done = subprocess.run([HADOLINT, str(DOCKERFILE)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_last_stage_runs_train_py_as_user_1000():
    assert len(STAGES) == 2
    assert INSTRUCTIONS[STAGES[0]][1] == "${BASE} AS packages"
    last = INSTRUCTIONS[STAGES[1] :]
    assert not any("pip" in rest for word, rest in last if word == "RUN"), "pip's remains stay in the first stage"
    users = [rest for word, rest in last if word == "USER"]
    assert users == ["1000"], "not root, and by number, as runAsNonRoot of Kubernetes asks"
    assert last[-1] == ["ENTRYPOINT", '["python", "train.py"]']


def test_packages_are_built_and_code_is_compiled_with_what_is_in_the_image():
    """pip's isolation would fetch the newest setuptools; torch.compile wants compilers by these names."""
    (pip,) = (rest.split(" && ") for word, rest in INSTRUCTIONS if word == "RUN" and "pip install" in rest)
    setuptools, packages = (command.split() for command in pip)
    assert setuptools[-1] == "setuptools"
    assert {"--no-build-isolation", ":all:"} < set(packages)
    assert all(command[command.index("--constraint") + 1] == "constraints.txt" for command in (setuptools, packages))
    assert re.search(r"^setuptools==", (REPOSITORY / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)

    from torch._inductor import config

    (apt,) = (rest for word, rest in INSTRUCTIONS if "apt-get install" in rest)
    assert {"gcc", config.cpp.cxx[1]} < set(apt.split())


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory):
    """Return the metadata that pip reads in the first stage, where setuptools has the copied files only."""
    (copied,) = (rest.split() for word, rest in INSTRUCTIONS[: STAGES[1]] if word == "COPY")
    folder = tmp_path_factory.mktemp("stage")
    for name in copied[:-1]:
        shutil.copy(REPOSITORY / name, folder)
    make = "import setuptools.build_meta as build; build.prepare_metadata_for_build_editable('.')"
    subprocess.run([sys.executable, "-c", make], cwd=folder, check=True, capture_output=True, timeout=120)
    (metadata,) = folder.glob("*.dist-info")
    return Distribution.at(metadata)


def test_the_packages_need_no_file_of_the_code(lockstep):
    """Else a change of the code would install PyTorch again."""
    (copied,) = (rest.split() for word, rest in INSTRUCTIONS[: STAGES[1]] if word == "COPY")
    assert copied == ["setup.cfg", "pyproject.toml", "constraints.txt", "./"]
    assert set(EXTRAS) <= set(lockstep.metadata.get_all("Provides-Extra"))


def test_every_familys_packages_are_in_the_image():
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    extras = dict(settings["options.extras_require"])
    contained = {name for extra in EXTRAS for name in re.findall(r"%\((\w+)\)s", extras[extra])}
    assert {*EXTRAS, *contained} == extras.keys() - {"dev"}


def test_every_package_of_the_image_has_one_version(lockstep):
    """All that its packages ask for, and what those ask for in turn, is in constraints.txt."""
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines if "==" in line and not line.startswith("#")}
    assert any("--constraint constraints.txt" in rest for word, rest in INSTRUCTIONS if "pip install" in rest)
    todo, seen, unpinned = [("lockstep", extra) for extra in ["", *EXTRAS]], set(), set()
    while todo:
        name, extra = requirement = todo.pop()
        if requirement in seen:
            continue
        seen.add(requirement)
        if name.startswith(("cuda-", "nvidia-", "triton")):
            continue  # installed only with torch for CUDA, which names their versions itself
        try:
            package = lockstep if name == "lockstep" else distribution(name)
        except PackageNotFoundError:
            continue  # not for this system
        if name != "lockstep" and name not in pinned:
            unpinned.add(name)
        for asked in map(Requirement, package.requires or []):
            if asked.marker is None or asked.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(asked.name), wanted) for wanted in ["", *asked.extras]]
    assert {name for name, _ in seen} > {"torch", "transformers", "mlflow-skinny", "tzdata"}
    assert unpinned == set()


def test_ignored_files_stay_out_of_the_image():
    def patterns(name: str) -> set[str]:
        lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()
        return {line.removeprefix("**/").strip("/") for line in lines if line and not line.startswith("#")}

    assert patterns(".gitignore") | {".git"} <= patterns(".dockerignore")


def test_a_run_in_the_image_knows_its_commit(monkeypatch):
    """There is no git in it; the build is given the commit."""
    assert ["ARG", "COMMIT"] in INSTRUCTIONS
    assert any(word == "ENV" and "LOCKSTEP_COMMIT=${COMMIT}" in rest for word, rest in INSTRUCTIONS)
    monkeypatch.setenv("PATH", "")
    assert run_log._commit() is None
    monkeypatch.setenv("LOCKSTEP_COMMIT", "0123456789ab")
    assert run_log._commit() == "0123456789ab"
