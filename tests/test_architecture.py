"""Import rules: packages import only lower layers, and families do not import each other."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# What a part may import of the project, besides itself.
GROUND = {
    "engine": set(),
    "callbacks": {"engine"},
    "datamodules": {"engine"},
    "lightning_modules": {"engine", "datamodules"},
    "commands": {"engine", "datamodules", "lightning_modules", "callbacks"},
    "train.py": {"commands"},
}
# Packages of `datamodules` and `lightning_modules` that belong to no family, and the packages that may import them.
SHARED_PACKAGES = {
    "multimodal": {"document_qa", "temporal", "vision_language"},
    "images": {"document_qa", "image_classifier", "multimodal", "vision_language"},
}
NO_NAMES = {"utils", "helpers", "common", "misc"}


def sources(part: str) -> list[Path]:
    path = REPOSITORY / part
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, f"{part} has no source"
    return found


def imports(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, dotted name as parts) of every import, also of those inside functions; relative imports are not used."""
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


def test_modules_know_their_data_by_batch_and_interface_alone():
    def allowed(path, name):
        family = path.relative_to(REPOSITORY / "lightning_modules").parts[0]
        shared = [[owner, file] for owner in (family, "multimodal") for file in ("batch", "interface")]
        return name[0] != "datamodules" or name[1:3] in shared

    assert violations("lightning_modules", allowed) == []


@pytest.mark.parametrize("part", ["lightning_modules", "datamodules"])
def test_families_do_not_know_each_other(part):
    def allowed(path, name):
        importer = path.relative_to(REPOSITORY / part).parts[0]
        packages = {folder.name for folder in (REPOSITORY / part).iterdir() if folder.is_dir()} | {*SHARED_PACKAGES}
        if name[0] not in ("lightning_modules", "datamodules") or name[1] not in packages - {importer}:
            return True
        return importer in SHARED_PACKAGES.get(name[1], set())

    assert violations(part, allowed) == []


def test_networks_do_not_import_lightning():
    """Only files with a LightningModule do. Networks, losses and metrics can be used without Lightning."""
    modules = {
        "module.py",
        "evaluated_classifier.py",
        "reader_module.py",
        "retriever_module.py",
        "multimodal_module.py",
    }

    def allowed(path, name):
        return path.name in modules or not (name[0].startswith("lightning") and name[0] != "lightning_modules")

    assert violations("lightning_modules", allowed) == []


def test_names_say_what_is_inside():
    paths = [path for part in GROUND for path in sources(part)]
    assert [path for path in paths if NO_NAMES & {*path.parts[len(REPOSITORY.parts) :], path.stem}] == []


def public_classes() -> Iterator[tuple[str, str]]:
    """Yield (name, path) of the classes at the top of modules."""
    for path in (path for part in GROUND for path in sources(part)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, str(path.relative_to(REPOSITORY))


def test_a_public_class_name_exists_once():
    """Who searches a name finds one class."""
    found: dict[str, list[str]] = {}
    for name, path in public_classes():
        found.setdefault(name, []).append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_type_ignores_have_a_reason():
    bare = re.compile(r"type: ignore\[[\w, -]+\]\s*$", re.MULTILINE)
    assert [path for part in GROUND for path in sources(part) if bare.search(path.read_text(encoding="utf-8"))] == []


INTERNALS = "engine/lightning_internals"
SETTINGS = ("torch.backends.",)  # Attributes that their owner documents as settings.
PRIVATE_OWNERS = ("lightning", "torch", "jsonargparse", "torchmetrics")


def foreign_names(tree: ast.AST) -> set[str]:
    """Names that a file binds by importing a library's module, class or function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in GROUND:
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def owner(node: ast.AST) -> ast.AST:
    """The object whose attributes an expression writes: `x` of `x.y`, of `vars(x)` and of `vars(x)[key]`."""
    if isinstance(node, ast.Subscript):
        node = node.value
        return owner(node) if isinstance(node, ast.Call) or ast.unparse(node) == "sys.modules" else ast.Constant(None)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "vars" and node.args:
        return node.args[0]
    return node.value if isinstance(node, ast.Attribute) else ast.Constant(None)


def patches(path: Path) -> Iterator[str]:
    """Yield where a file changes an attribute of a module or class that it imports from a library."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    foreign = foreign_names(tree)
    for node in ast.walk(tree):
        changed: list[ast.AST] = []
        if isinstance(node, ast.Assign | ast.Delete):
            changed = [owner(target) for target in node.targets]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            changed = [owner(node.target)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            changed = [node.args[0]]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            changed = [owner(node.func.value)] if isinstance(node.func.value, ast.Call) else []
        for target in changed:
            text = ast.unparse(target)
            plain = all(isinstance(part, ast.Name | ast.Attribute | ast.expr_context) for part in ast.walk(target))
            if plain and text.split(".")[0] in foreign and not f"{text}.".startswith(SETTINGS):
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {text}"


def private_uses(path: Path) -> Iterator[str]:
    """Yield where a file imports a private name, or names a private attribute in a string, of PRIVATE_OWNERS."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr") and len(node.args) > 1:
            attribute = node.args[1]
            if isinstance(attribute, ast.Constant) and ast.unparse(node.args[0]) != "self":
                names = [f"{PRIVATE_OWNERS[0]}.{attribute.value}"]  # of which library is not known
        for name in names:
            first, *rest = name.split(".")
            if first in PRIVATE_OWNERS and any(part.startswith("_") and not part.startswith("__") for part in rest):
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name}"


def test_no_library_is_patched():
    """A change of a module or class affects the whole process, and an update of the library breaks it."""
    assert [found for part in GROUND for path in sources(part) for found in patches(path)] == []


def outside_internals() -> list[Path]:
    return [path for part in GROUND for path in sources(part) if path.parent != REPOSITORY / INTERNALS]


def test_private_names_are_used_in_one_package():
    assert [found for path in outside_internals() for found in private_uses(path)] == []


def has_private(owner: type, name: str) -> bool:
    """Whether a class defines a private member, or assigns it in one of its methods."""
    return name in vars(owner) or re.search(rf"self\.{name}\b\s*(:[^=\n]*)?=", inspect.getsource(owner)) is not None


def inherited_private_uses(node: ast.ClassDef, own: type) -> Iterator[str]:
    """Yield private members of a library's base class that a class overrides, or uses through `self` or `super()`."""
    bases = [base for base in own.__mro__[1:] if base.__module__.split(".")[0] in PRIVATE_OWNERS]
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.Attribute) and ast.unparse(part.value) in ("self", "cls", "super()"):
            names.add(part.attr)
    for name in sorted(name for name in names if name.startswith("_") and not name.startswith("__")):
        yield from (f"{own.__name__}: {base.__name__}.{name}" for base in bases if has_private(base, name))


@pytest.mark.slow
def test_subclasses_use_no_private_members_of_a_library():
    found = []
    for path in outside_internals():
        classes = [
            node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef) and node.bases
        ]
        if path.name != "lmms_eval_model.py" and classes:  # needs a package of another environment
            module = importlib.import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
            found += [use for node in classes for use in inherited_private_uses(node, vars(module)[node.name])]
    assert found == []


def test_private_members_of_a_base_class_are_found(monkeypatch):
    source = "class Own:\n    def _save(self):\n        return super()._load() + self._file + self._other + self._own"

    class Base:
        def __init__(self):
            self._file: str = ""

        def _save(self):
            pass

        _load = _save

    monkeypatch.setitem(globals(), "PRIVATE_OWNERS", (__name__.split(".")[0],))
    (node,) = ast.parse(source).body
    uses = list(inherited_private_uses(node, type("Own", (Base,), {})))
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
def test_the_scan_finds_each_form_of_patch(tmp_path, monkeypatch, line):
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    (tmp_path / "file.py").write_text(f"import sys\nimport torch\nfrom lightning import Trainer\n{line}\n")
    assert len(list(patches(tmp_path / "file.py"))) == 1


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
def test_private_uses_are_found(tmp_path, monkeypatch, line):
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    (tmp_path / "file.py").write_text(line)
    assert len(list(private_uses(tmp_path / "file.py"))) == 1


def test_assignments_to_own_objects_are_allowed(tmp_path, monkeypatch):
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
    monkeypatch.setitem(globals(), "REPOSITORY", tmp_path)
    (tmp_path / "file.py").write_text("\n".join(lines))
    assert [*patches(tmp_path / "file.py"), *private_uses(tmp_path / "file.py")] == []


def test_the_rules_find_what_they_forbid(tmp_path, monkeypatch):
    """A house that breaks every rule: each of the tests above fails."""
    files = {
        "engine/ground.py": "from callbacks.watch import x",
        "callbacks/watch.py": "def f():\n    import lightning_modules.recommender.networks.sequence_encoder",
        "datamodules/recommender/batch.py": "from lightning_modules.recommender.module import x",
        "datamodules/other/utils.py": "import datamodules.multimodal.batch",
        "lightning_modules/recommender/networks/sequence_encoder.py": "from lightning.pytorch import LightningModule",
        "lightning_modules/recommender/module.py": "from datamodules.recommender import store",
        "lightning_modules/other/module.py": "from lightning_modules.recommender.networks.sequence_encoder import x",
        "commands/cli/main.py": "import train",
        "train.py": "import engine.ground",
        "engine/question.py": "class Question:\n    pass",
        "commands/question.py": "class Question:\n    pass",
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
        test_modules_know_their_data_by_batch_and_interface_alone,
        test_networks_do_not_import_lightning,
        test_names_say_what_is_inside,
        test_a_public_class_name_exists_once,
    ]
    for rule in broken:
        with pytest.raises(AssertionError):
            rule()


@pytest.mark.slow
def test_help_does_not_pay_for_what_it_does_not_use():
    """Beyond what Lightning itself imports: torchmetrics imports transformers and scipy where they are installed."""
    program = (
        "import runpy, sys\n"
        "import lightning.pytorch\n"
        "of_lightning = set(sys.modules)\n"
        "sys.argv = ['train.py', 'fit', '--help']\n"
        "try:\n    runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = 'polars pandas transformers peft scipy matplotlib PIL sklearn pyarrow onnx onnxruntime safetensors '\n"
        "heavy += 'faiss mlflow wandb prometheus_client tensorboard sqlalchemy'\n"
        "print('heavy:', sorted(set(heavy.split()) & set(sys.modules) - of_lightning))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert "--trainer.max_epochs" in done.stdout
    assert done.stdout.splitlines()[-1] == "heavy: []"
