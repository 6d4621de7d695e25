"""The scan of sources finds each form of a patch of a library, and each use of a library's private names."""

import ast

import pytest

from tests.support.library_uses import inherited_private_uses, patches, private_uses


def test_private_members_of_a_base_class_are_found():
    source = "class Own:\n    def _save(self):\n        return super()._load() + self._file + self._other + self._own"

    class Base:
        def __init__(self):
            self._file: str = ""

        def _save(self):
            pass

        _load = _save

    (node,) = ast.parse(source).body
    uses = list(inherited_private_uses(node, type("Own", (Base,), {}), (__name__.split(".")[0],)))
    assert uses == ["Own: Base._file", "Own: Base._load", "Own: Base._save"]


@pytest.mark.parametrize(
    "line",
    [
        "torch.nn.Linear.forward = f",
        "Trainer.fit = f",
        "del Trainer.fit",
        "setattr(torch.optim, name, f)",
        "vars(torch).update(a=1)",
        "vars(torch)['a'] = 1",
        "sys.modules['torch'] = f",
        "torch.optim.SGD += f",
    ],
)
def test_the_scan_finds_each_form_of_patch(tmp_path, line):
    (tmp_path / "file.py").write_text(f"import sys\nimport torch\nfrom lightning import Trainer\n{line}\n")
    assert len(list(patches(tmp_path / "file.py", ()))) == 1


@pytest.mark.parametrize(
    "line",
    [
        "from torch.nn.modules.batchnorm import _NormBase",
        "import torch._dynamo",
        "torch._foreach_mul_(a, b)",
        "getattr(optimizer, '_step', None)",
        "from lightning._graveyard import hpu",
    ],
)
def test_private_uses_are_found(tmp_path, line):
    (tmp_path / "file.py").write_text(line)
    assert len(list(private_uses(tmp_path / "file.py"))) == 1


def test_assignments_to_own_objects_are_allowed(tmp_path):
    lines = [
        "import os",
        "import torch",
        "os.environ['A'] = '1'",
        "torch.backends.cudnn.benchmark = True",
        "class A:\n    b = 1",
        "a = A()",
        "a.b = torch.ones(1)",
        "vars(a).update(b=2)",
        "getattr(a, '__len__', None)",
    ]
    (tmp_path / "file.py").write_text("\n".join(lines))
    assert [*patches(tmp_path / "file.py", ()), *private_uses(tmp_path / "file.py")] == []
