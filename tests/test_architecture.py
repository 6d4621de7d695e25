"""Import rules: packages import only lower layers, and families do not import each other."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.library_uses import inherited_private_uses, patches, private_uses

# What a part may import of the project, besides itself.
MAY_IMPORT = {
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


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_packages_import_lower_layers_only(part):
    def allowed(path, name):
        return name[0] not in {*MAY_IMPORT, "train", "tests", "benchmarks"} - {part} or name[0] in MAY_IMPORT[part]

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
    paths = [path for part in MAY_IMPORT for path in sources(part)]
    assert [path for path in paths if NO_NAMES & {*path.parts[len(REPOSITORY.parts) :], path.stem}] == []


def public_classes() -> Iterator[tuple[str, str]]:
    """Yield (name, path) of the classes at the top of modules."""
    for path in (path for part in MAY_IMPORT for path in sources(part)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, str(path.relative_to(REPOSITORY))


def test_a_public_class_name_exists_once():
    """A search for a name finds a single class."""
    found: dict[str, list[str]] = {}
    for name, path in public_classes():
        found.setdefault(name, []).append(path)
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_type_ignores_have_a_reason():
    bare = re.compile(r"type: ignore\[[\w, -]+\]\s*$", re.MULTILINE)
    assert [
        path for part in MAY_IMPORT for path in sources(part) if bare.search(path.read_text(encoding="utf-8"))
    ] == []


INTERNALS = "engine/lightning_internals"


def test_no_library_is_patched():
    """A change of a module or class affects the whole process, and an update of the library breaks it."""
    assert [found for part in MAY_IMPORT for path in sources(part) for found in patches(path, MAY_IMPORT)] == []


def outside_internals() -> list[Path]:
    return [path for part in MAY_IMPORT for path in sources(part) if path.parent != REPOSITORY / INTERNALS]


def test_private_names_are_used_in_one_package():
    assert [found for path in outside_internals() for found in private_uses(path)] == []


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


def test_the_rules_find_what_they_forbid(tmp_path, monkeypatch):
    """Each of the tests above fails in a tree of sources that breaks its rule."""
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
        lambda: test_packages_import_lower_layers_only("engine"),
        lambda: test_packages_import_lower_layers_only("callbacks"),
        lambda: test_packages_import_lower_layers_only("datamodules"),
        lambda: test_packages_import_lower_layers_only("commands"),
        lambda: test_packages_import_lower_layers_only("train.py"),
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
