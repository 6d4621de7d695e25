"""Follows docs/add-a-family.md in a copy of the checkout, and trains the added family."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import test_architecture
from tests.configs import test_configs
from tests.conftest import REPOSITORY, Run
from tests.support.ranks.team import FORKED_TORCHRUN

GUIDE = (REPOSITORY / "docs/add-a-family.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/]+\.\w+)`:\n\n```\w+\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
BLOCKS = re.findall(r"^```sh\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
REGISTRY = "commands/cli/class_registry.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The checkout with the family added to it, command by command and file by file."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("callbacks", "commands", "configs", "datamodules", "engine", "lightning_modules"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "train.py", folder)
    for command in COMMANDS:
        if not command.startswith("python "):
            subprocess.run(["sh", "-ec", command], cwd=folder, check=True, timeout=60)
    for name, text in FILES.items():
        if name != REGISTRY:
            (folder / name).write_text(text, encoding="utf-8")
    register(folder / REGISTRY, FILES[REGISTRY].splitlines(keepends=True))
    return folder


def register(registry: Path, lines: list[str]) -> None:
    """Imports to the other imports, names to the other names."""
    imports = [line for line in lines if line.startswith("from ")]
    names = [line for line in lines if line not in imports]
    before, opening, after = registry.read_text(encoding="utf-8").partition("\n__all__ = [\n")
    assert opening, "commands/cli/class_registry.py has no list of names"
    docstring, its = before.split("\n\n", 1)
    imports = sorted([*its.splitlines(keepends=True), *imports])  # as ruff wants them
    registry.write_text(f"{docstring}\n\n{''.join(imports)}{opening}{''.join(names)}{after}", encoding="utf-8")


SMALL = "--model.init_args.hidden_size 48 --model.init_args.learning_rate 0.01"
"""Options of a training: a third of the time, and it still learns."""

IN_TURN = """
import os, runpy, shlex, sys
sys.path.insert(0, "")
import commands.cli.main
for line in sys.argv[1:]:
    print("$", line, flush=True)
    pid = os.fork()
    if not pid:
        sys.argv = shlex.split(line)[1:]
        sys.modules["__main__"].__spec__ = None
        if sys.argv[0] == "-m":
            del sys.argv[0]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{line} failed")
"""
"""Runs commands one after the other, each in a child of a process that has imported torch."""


def do(lines: list[str], folder: Path) -> None:
    """Run commands of the guide; nothing that they start survives."""
    started = subprocess.Popen(
        [sys.executable, "-c", IN_TURN, *lines],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = started.communicate(timeout=1200)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == 0, output


def test_the_readmes_state_the_number_of_lines_of_the_family():
    """Count the lines of code, comments and config, without empty lines."""
    assert {Path(name).suffix for name in FILES} == {".py", ".yaml"}
    assert len(FILES) == 5
    lines = sum(bool(line.strip()) for text in FILES.values() for line in text.splitlines())
    assert f"adds a family in {lines} lines" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f" {lines} 行代码添加任务" in (REPOSITORY / "README.zh-CN.md").read_text(encoding="utf-8")


def test_the_added_family_keeps_the_rules(copy, monkeypatch):
    monkeypatch.setattr(test_architecture, "REPOSITORY", copy)
    test_architecture.test_modules_know_their_data_by_batch_and_interface_alone()
    test_architecture.test_networks_do_not_import_lightning()
    test_architecture.test_names_say_what_is_inside()
    for part in ("datamodules", "lightning_modules"):
        test_architecture.test_packages_import_lower_layers_only(part)
        test_architecture.test_families_do_not_know_each_other(part)
    for name in FILES:
        if name.endswith(".yaml"):
            test_configs.test_every_key_has_a_comment(copy / name)
    style = [sys.executable, "-m", "ruff", "check", "--config", str(REPOSITORY / "pyproject.toml")]
    sources = [name for name in FILES if name.endswith(".py")]
    check = subprocess.run([*style, *sources], cwd=copy, capture_output=True, timeout=60)
    assert check.returncode == 0, check.stdout.decode()


def as_run(command: str) -> str:
    """Return a command with a small model; forked ranks replace those that Lightning would start."""
    if not command.startswith("python train.py fit "):
        return command
    if "ddp_cpu" in command:
        command = command.replace("python", f"python {shlex.join(FORKED_TORCHRUN)} --standalone --nproc-per-node 2")
    return f"{command} {SMALL}"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.timeout(1500)
def test_the_commands_of_the_guide_train_the_new_family(copy):
    trained = [command for command in COMMANDS if command.startswith("python train.py ")]
    assert len(trained) == 5
    do([as_run(command) for command in trained], copy)
    uninterrupted, halves = Run(copy / "runs/bytes"), Run(copy / "runs/halves")
    (learned,) = uninterrupted.series("val/bits_per_byte").values()
    assert learned < 0.7 * bits_of_frequencies()
    assert 0 < uninterrupted.series("test/bits_per_byte").popitem()[1] < 0.7 * bits_of_frequencies()
    assert len((uninterrupted.folder / "predictions.jsonl").read_text().splitlines()) > 100
    losses, resumed = uninterrupted.series("train/loss"), halves.series("train/loss")
    assert losses.keys() == resumed.keys(), "the second half follows the first"
    assert max(losses) > 150, "the second half follows the first"
    assert resumed == pytest.approx(losses, rel=1e-3)
    log = (halves.folder / "train.log").read_text()
    assert "resuming after step 100" in log
    assert "2 ranks" in log


def bits_of_frequencies() -> float:
    """Return the entropy of a byte by its frequency in the whole text."""
    from pydoc_data.topics import topics

    shares = np.bincount(np.frombuffer("\n\n".join(topics.values()).encode(), np.uint8), minlength=256)
    shares = shares[shares > 0] / shares.sum()
    return float(-(shares * np.log2(shares)).sum())
