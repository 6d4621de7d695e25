"""Skips tests without packages that a machine with a GPU may lack, and hides installed ones to test that."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.system.extras import missing_modules

_HIDING = """
import sys
from importlib.machinery import PathFinder

hidden = {hidden!r}


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):  # torchmetrics looks for matplotlib by its metadata
        return () if context.name in hidden else super().find_distributions(context)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


def needs(*extras: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped if a package of these extras of setup.cfg is not installed.

    A command of train.py checks all packages of an extra, so the test does, too.
    """
    missing = sorted({module for extra in extras for module in missing_modules(extra)})
    return pytest.mark.skipif(bool(missing), reason=f"not installed here: {', '.join(missing)}")


def hide(folder: Path, modules: Iterable[str]) -> str:
    """Return a folder that, on PYTHONPATH, hides top-level modules from a process and from those that it starts."""
    (folder / "sitecustomize.py").write_text(_HIDING.format(hidden=sorted(modules)), encoding="utf-8")
    return str(folder)
