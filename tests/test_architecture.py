"""The rules of the house: imports point from the roof to the ground, families do not know each other."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# What a part may import of the house, besides itself.
GROUND = {
    "engine": set(),
    "callbacks": {"engine"},
    "datamodules": {"engine"},
    "lightning_modules": {"engine", "datamodules"},
    "commands": {"engine", "datamodules", "lightning_modules", "callbacks"},
    "train.py": {"commands"},
}
SHARED_FAMILIES = {"multimodal"}  # families may build on it
NO_NAMES = {"utils", "helpers", "common", "misc"}


def sources(part: str) -> list[Path]:
    path = REPOSITORY / part
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, f"{part} has no source"
    return found


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, dotted name as parts) of every import, also of those inside functions; relative ones are not used."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = (node.module or "").split(".")
            yield from ((node.lineno, [*module, alias.name]) for alias in node.names)


def violations(part: str, allowed) -> list[str]:
    return [
        f"{path.relative_to(REPOSITORY)}:{line}: {'.'.join(name)}"
        for path in sources(part)
        for line, name in imports(path)
        if not allowed(path, name)
    ]


@pytest.mark.parametrize("part", GROUND)
def test_imports_point_to_the_ground(part):
    def allowed(path, name):
        return name[0] not in {*GROUND, "train", "tests", "benchmarks"} - {part} or name[0] in GROUND[part]

    assert violations(part, allowed) == []


def test_modules_know_their_data_by_the_batch_alone():
    def allowed(path, name):
        family = path.relative_to(REPOSITORY / "lightning_modules").parts[0]
        return name[0] != "datamodules" or name[1:3] in ([family, "batch"], ["multimodal", "batch"])

    assert violations("lightning_modules", allowed) == []


@pytest.mark.parametrize("part", ["lightning_modules", "datamodules"])
def test_families_do_not_know_each_other(part):
    def allowed(path, name):
        inside = path.relative_to(REPOSITORY / part).parts
        families = {folder.name for folder in (REPOSITORY / part).iterdir() if folder.is_dir()} - SHARED_FAMILIES
        return name[0] not in ("lightning_modules", "datamodules") or name[1] not in families - {inside[0]}

    assert violations(part, allowed) == []


def test_networks_do_not_import_lightning():
    """Only a family's module.py does, and what it is made from can be used without Lightning."""

    def allowed(path, name):
        return path.name == "module.py" or not (name[0].startswith("lightning") and name[0] != "lightning_modules")

    assert violations("lightning_modules", allowed) == []


def test_names_say_what_is_inside():
    paths = [path for part in GROUND for path in sources(part)]
    assert [path for path in paths if NO_NAMES & {*path.parts[len(REPOSITORY.parts) :], path.stem}] == []


def test_the_rules_find_what_they_forbid(tmp_path, monkeypatch):
    """A house that breaks every rule: each of the tests above fails."""
    files = {
        "engine/ground.py": "from callbacks.watch import x",
        "callbacks/watch.py": "def f():\n    import lightning_modules.recommender.network",
        "datamodules/recommender/batch.py": "from lightning_modules.recommender.module import x",
        "datamodules/other/utils.py": "import datamodules.recommender.batch",
        "lightning_modules/recommender/network.py": "from lightning.pytorch import LightningModule",
        "lightning_modules/recommender/module.py": "from datamodules.recommender import store",
        "lightning_modules/other/module.py": "from lightning_modules.recommender.network import x",
        "commands/cli.py": "import train",
        "train.py": "import engine.ground",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    broken = [
        lambda: test_imports_point_to_the_ground("engine"),
        lambda: test_imports_point_to_the_ground("callbacks"),
        lambda: test_imports_point_to_the_ground("datamodules"),
        lambda: test_imports_point_to_the_ground("commands"),
        lambda: test_imports_point_to_the_ground("train.py"),
        lambda: test_families_do_not_know_each_other("datamodules"),
        lambda: test_families_do_not_know_each_other("lightning_modules"),
        test_modules_know_their_data_by_the_batch_alone,
        test_networks_do_not_import_lightning,
        test_names_say_what_is_inside,
    ]
    for rule in broken:
        with pytest.raises(AssertionError):
            rule()


def test_help_does_not_pay_for_what_it_does_not_use():
    program = (
        "import runpy, sys\n"
        "sys.argv = ['train.py', 'fit', '--help']\n"
        "try:\n    runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = 'polars pandas transformers peft scipy matplotlib PIL sklearn pyarrow onnx onnxruntime safetensors '\n"
        "heavy += 'mlflow wandb prometheus_client tensorboard sqlalchemy'\n"
        "print('heavy:', sorted(set(heavy.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert "--trainer.max_epochs" in done.stdout
    assert done.stdout.splitlines()[-1] == "heavy: []"
