"""Checks that a command whose config needs missing packages ends at once with the command to install them."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from commands.cli import class_registry
from commands.cli.main import main
from engine.system.extras import MODULES
from tests.conftest import REPOSITORY, TINY

EXTRAS = {
    "temporal": "language",
    "vision_language": "language",
    "document_qa": "documents",
    "image_classifier": "images",
}
"""{family: the extra that all its configs need}"""

CONFIGS = {
    "temporal/quickstart": "language",
    "vision_language/quickstart_pretrain": "language",
    "document_qa/quickstart": "documents",
    "document_qa/retriever_quickstart": "documents",
    "image_classifier/digits": "images",
    "recommender/sasrec": "recommender",
}
"""{config: the extra that it needs}"""

WANDB, MLFLOW = (str(REPOSITORY / f"configs/overlays/{name}.yaml") for name in ("wandb", "mlflow"))
TIMELINES = str(REPOSITORY / "configs/temporal/quickstart.yaml")
DIGITS = str(REPOSITORY / "configs/image_classifier/digits.yaml")
OPTIONS = {
    "wandb": ["fit", *TINY, "--config", WANDB],
    "mlflow": ["fit", *TINY, "--config", MLFLOW],
    "monitoring": ["fit", *TINY, "--prometheus.port", "8900"],
    "bits": ["fit", *TINY, "--model.init_args.optimizer", "adamw_8bit"],
    "liger": ["fit", "--config", TIMELINES, "--model.init_args.language_model.loss_kernel", "liger"],
    "onnx": ["export", *TINY, "--output", "out"],
    "demo": ["demo", *TINY],
    "faiss": ["export", *TINY, "--output", "out", "--model.init_args.export_index", "Flat"],
}
"""{extra: a command that needs it}"""

EVERY_MODULE = {module for modules in MODULES.values() for module in modules} - {"PIL"}
"""Modules that all extras install; Pillow comes with TensorBoard."""

IN_TURN = """
import importlib.metadata, json, os, runpy, sys
from importlib.machinery import PathFinder

modules = json.loads(sys.argv[2])
distributions = importlib.metadata.packages_distributions()
hidden = {name.lower().replace("_", "-") for module in modules for name in distributions.get(module, [])}

class Without(PathFinder):
    @classmethod
    def find_distributions(cls, context):  # torchmetrics imports what it finds metadata of
        found = super().find_distributions(context)
        return (package for package in found if package.metadata["Name"].lower().replace("_", "-") not in hidden)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
sys.modules.update(dict.fromkeys(modules))
train, commands = sys.argv[1] + "/train.py", json.loads(sys.argv[3])
for words in commands:
    os.environ.pop("PL_GLOBAL_SEED", None)
    sys.argv = [train, *words]
    try:
        runpy.run_path(train, run_name="__main__")
    except SystemExit as end:
        if end.code and not (words[0] == "doctor" and end.code == 1):  # a warning of this machine
            raise
"""


@pytest.fixture
def refused(monkeypatch, tmp_path, capsys):
    """Runs a command without the packages of an extra; returns the lines that it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_DEBUG", raising=False)

    def run(arguments: list[str], *extras: str) -> list[str]:
        for module in (module for extra in extras for module in MODULES[extra]):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2
        printed = capsys.readouterr()
        return (printed.out + printed.err).splitlines()

    return run


def assert_names(lines: list[str], extra: str) -> None:
    assert len(lines) <= 3
    assert lines[-2].startswith("error: ")
    assert "not installed here" in lines[-2]
    assert lines[-1].endswith(f"pip install '{REPOSITORY}[{extra}]'")


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("command", ["fit", "prepare"])
def test_a_family_without_its_extra_is_refused_with_the_extras_name(refused, tmp_path, config, command):
    extra = CONFIGS[config]
    assert_names(refused([command, "--config", str(REPOSITORY / f"configs/{config}.yaml")], extra), extra)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("extra", OPTIONS)
def test_an_option_without_its_extra_is_refused_with_the_extras_name(refused, tmp_path, extra):
    assert_names(refused(OPTIONS[extra], extra), extra)
    assert not (tmp_path / "runs").exists()


def test_all_missing_extras_are_named_at_once(refused):
    options = ["--config", WANDB, "--prometheus.port", "8900"]
    lines = refused(["fit", "--config", DIGITS, *options], "images", "wandb", "monitoring")
    assert "ImageClassifier, wandb.project and prometheus.port need " in lines[-2]
    assert_names(lines, "images,wandb,monitoring")


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("configs/*/**/*.yaml")), ids=lambda path: path.stem)
def test_every_family_names_its_extra(path):
    family = path.relative_to(REPOSITORY / "configs").parts[0]
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    named = [config[part]["class_path"] for part in ("model", "data") if "class_path" in config.get(part, {})]
    assert {getattr(class_registry, name).extra for name in named} <= {EXTRAS.get(family)}


@pytest.mark.slow
def test_the_quickstart_needs_no_extra(tmp_path):
    """Its commands, one after the other, in a process that has none of the packages of any extra."""
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs")
    small = [*TINY, "--trainer.max_epochs", "1"]
    commands = [
        ["fit", *small, "--run_name", "a"],
        ["test", "--run_name", "a"],
        ["predict", "--run_name", "a"],
        ["report", "a"],
        ["doctor", *small],
    ]
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, str(REPOSITORY), json.dumps(sorted(EVERY_MODULE)), json.dumps(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "runs/a/predictions.jsonl").stat().st_size
    assert (tmp_path / "runs/a/report.html").stat().st_size
    assert "pip install" not in done.stdout
