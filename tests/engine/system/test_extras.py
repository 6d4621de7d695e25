"""Tests messages about missing packages of the extras, and the command that installs them."""

import configparser
import pickle
import sys
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement

from engine.system import extras
from engine.system.extras import (
    MODULES,
    MissingPackagesError,
    explain_import_error,
    install_command,
    missing_modules,
    require_extras,
)
from engine.system.installation import SETUP
from tests.conftest import REPOSITORY


def extras_of_setup() -> dict[str, set[str]]:
    settings = configparser.ConfigParser(comment_prefixes=("#",), interpolation=configparser.BasicInterpolation())
    settings.read(SETUP, encoding="utf-8")
    lines = {extra: text.splitlines() for extra, text in settings["options.extras_require"].items()}
    return {extra: {Requirement(line).name for line in given if line} for extra, given in lines.items()}


def test_the_modules_are_those_of_the_packages_in_setup_cfg():
    requirements = {extra: {extras._package(module) for module in modules} for extra, modules in MODULES.items()}
    assert requirements == {extra: packages for extra, packages in extras_of_setup().items() if extra != "dev"}


def test_development_has_every_extra():
    assert (
        set.union(*(packages for extra, packages in extras_of_setup().items() if extra != "dev"))
        <= (extras_of_setup()["dev"])
    )
    assert {extra: missing for extra in MODULES if (missing := missing_modules(extra))} == {}
    require_extras(dict.fromkeys(MODULES, "everything"))


def test_missing_packages_are_named_with_what_needs_them(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    for module in ("transformers", "PIL", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPackagesError) as refused:
        require_extras({"language": "SeriesLanguageModel", "bits": "adamw_8bit", "wandb": "wandb.project"})
    assert (
        refused.value.lacking
        == "SeriesLanguageModel and wandb.project need pillow, transformers and wandb, not installed here"
    )
    assert refused.value.command.endswith("pip install '.[language,wandb]'")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_the_command_fits_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert install_command(["onnx"]).endswith(f"pip install '{REPOSITORY}[onnx]'")


@pytest.mark.parametrize("own", [True, False])
def test_the_pip_is_that_of_the_environment(monkeypatch, tmp_path, own):
    """If another pip, which would install elsewhere, comes first on the PATH, the command has the full path."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "pip"):
        (tmp_path / ".venv/bin" / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / ".venv/bin") if own else "")
    assert install_command(["bits"]).split()[0] == ("pip" if own else ".venv/bin/pip")


def test_outside_a_checkout_the_missing_packages_are_named(monkeypatch, tmp_path):
    """PyPI has another project of this name."""
    requires = [
        "torch<3,>=2.6",
        'peft>=0.18; extra == "language"',
        'pillow>=12.2; extra == "language"',
        'transformers<6,>=5.20.2; extra == "language"',
        'pillow>=12.2; extra == "images"',
    ]
    monkeypatch.setattr(extras, "SETUP", tmp_path / "setup.cfg")
    monkeypatch.setattr(extras.metadata, "requires", lambda name: requires)
    for module in ("transformers", "PIL"):
        monkeypatch.setitem(sys.modules, module, None)
    assert install_command(["language"]).endswith("pip install 'pillow>=12.2' 'transformers<6,>=5.20.2'")


def test_a_failed_import_names_the_extra(monkeypatch):
    assert find_spec("reportlab") is not None
    other = ModuleNotFoundError("No module named 'reportlab.of_old'", name="reportlab.of_old")
    assert explain_import_error(other) is other, "the package is installed"
    monkeypatch.setitem(sys.modules, "reportlab", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        import reportlab.pdfgen  # noqa: F401
    assert "[documents]" in str(explain_import_error(raised.value))
    assert explain_import_error(other := ValueError("else")) is other
