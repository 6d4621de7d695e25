"""Finds where a source file patches a library or uses a library's private names."""

import ast
import inspect
import re
from collections.abc import Collection, Iterator
from pathlib import Path

SETTINGS = ("torch.backends.",)  # Attributes that their owner documents as settings.
PRIVATE_OWNERS = ("lightning", "torch", "jsonargparse", "torchmetrics")


def foreign_names(tree: ast.AST, own: Collection[str]) -> set[str]:
    """Return the names that a file binds by importing from another package than `own`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] not in own:
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


def patches(path: Path, own: Collection[str]) -> Iterator[str]:
    """Yield where a file changes an attribute of a module or class that it imports from another package than `own`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    foreign = foreign_names(tree, own)
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
                yield f"{path}:{node.lineno}: {text}"


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
                yield f"{path}:{node.lineno}: {name}"


def has_private(owner: type, name: str) -> bool:
    """Whether a class defines a private member, or assigns it in one of its methods."""
    return name in vars(owner) or re.search(rf"self\.{name}\b\s*(:[^=\n]*)?=", inspect.getsource(owner)) is not None


def inherited_private_uses(node: ast.ClassDef, own: type, owners: Collection[str] = PRIVATE_OWNERS) -> Iterator[str]:
    """Yield private members of a library's base class that a class overrides, or uses through `self` or `super()`."""
    bases = [base for base in own.__mro__[1:] if base.__module__.split(".")[0] in owners]
    names = set()
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            names.add(part.name)
        elif isinstance(part, ast.Attribute) and ast.unparse(part.value) in ("self", "cls", "super()"):
            names.add(part.attr)
    for name in sorted(name for name in names if name.startswith("_") and not name.startswith("__")):
        yield from (f"{own.__name__}: {base.__name__}.{name}" for base in bases if has_private(base, name))
