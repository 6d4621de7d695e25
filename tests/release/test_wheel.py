"""The wheel contains every package, config and page, and the command `lockstep`."""

import configparser
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.system.installation import SOURCES
from tests.conftest import REPOSITORY, TINY

SCRIPT = "import sys\nfrom train import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
"""What pip writes for the command."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built by setuptools as pip does it, without a network, from a copy: it leaves a build folder behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in (*SOURCES, "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(REPOSITORY / name, folder)
    build = "import setuptools.build_meta as build; build.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=folder, check=True, capture_output=True, timeout=120)
    (file,) = folder.glob("lockstep-*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_has_every_file_of_the_program(wheel):
    files = {path.relative_to(REPOSITORY) for name in SOURCES for path in sorted((REPOSITORY / name).rglob("*"))}
    wanted = {file.as_posix() for file in files if (REPOSITORY / file).is_file() and "__pycache__" not in file.parts}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert len(wanted) > 500
    assert packed == {*wanted, "train.py"}
    assert {Path(name).suffix for name in packed} == {".py", ".yaml", ".js", ".css", ".html"}


def test_the_wheel_has_the_command_and_the_model_of_lmms_eval(wheel):
    (entry,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    points = configparser.ConfigParser()
    points.read_string(wheel.read(entry).decode())
    assert {section: dict(points[section]) for section in points.sections()} == {
        "console_scripts": {"lockstep": "train:main"},
        "lmms_eval.models": {"lockstep": "lightning_modules.multimodal.export.lmms_eval_model:manifest"},
    }


@pytest.mark.slow
@pytest.mark.distributed
def test_the_wheel_trains_on_two_ranks_without_a_checkout(wheel, tmp_path):
    """Lightning starts the second process with the script that the user has started."""
    site, command, work = tmp_path / "site", tmp_path / "bin/lockstep", tmp_path / "work"
    wheel.extractall(site)
    command.parent.mkdir()
    command.write_text(SCRIPT)
    work.mkdir()
    surroundings = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, str(command), *words],
            cwd=work,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    small = ["--config", "configs/recommender/quickstart.yaml", *TINY[2:], "--run_name", "a"]
    output = run("fit", *small, "--trainer.devices", "2", "--trainer.strategy", "ddp", "--trainer.max_epochs", "1")
    assert "world size 2, device cpu" in output
    assert "lockstep test --run_name a" in output
    environment = json.loads((work / "runs/a/environment.json").read_text())
    assert environment["packages"]["lockstep"]
    assert environment["commit"] is None
    run("report", "a")
    assert (work / "runs/a/report.html").stat().st_size
    assert f"read from {site / 'configs'}" in run("--help")
