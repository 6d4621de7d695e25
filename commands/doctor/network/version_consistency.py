"""Checks that source files and packages are the same on all ranks."""

import hashlib
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from commands.doctor.check import Finding
from engine.io.name_list import join_names
from engine.system.installation import PROJECT, SOURCES, package_version

_PACKAGES = (
    "torch", "lightning", "torchmetrics", "numpy", "jsonargparse", "transformers", "tokenizers", "peft", "safetensors",
    "polars", "pyarrow", "pillow", "bitsandbytes", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
_MAX_ITEMS = 5  # files named in a message


def source_files(project: Path = PROJECT) -> dict[str, str]:
    """Return {path in the project: hash} of all source files and configs."""
    return {path.relative_to(project).as_posix(): _hash(path) for path in _source(project)}


def _source(project: Path) -> Iterator[Path]:
    for name in SOURCES:
        folder = project / name
        files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        yield from (path for path in files if path.suffix in (".py", ".yaml") and path.is_file())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def combined_hash(files: Mapping[str, str]) -> str:
    """Return one hash of all files."""
    return hashlib.sha256("\n".join(f"{name} {files[name]}" for name in sorted(files)).encode()).hexdigest()[:12]


def packages() -> dict[str, str]:
    """Return {package: version} of Python and the installed packages that affect a training."""
    installed = {name: version for name in _PACKAGES if (version := package_version(name))}
    return {"python": platform.python_version(), **installed}


def code_finding(
    hashes: Mapping[str, str], commits: Mapping[str, str], files: Mapping[str, Mapping[str, str]]
) -> Finding:
    """Report whether all ranks run the same source files.

    Args:
        hashes: {rank's name: hash of all source files}.
        commits: {rank's name: commit}.
        files: {rank's name: {file: hash}}; only needed if `hashes` differ.
    """
    first, *others = hashes
    commit = f"commit {commits[first]}" if commits[first] else "no git checkout"
    if len(set(hashes.values())) == 1:
        return Finding("same code", "ok", f"{commit}, source {hashes[first]} on all {len(hashes)} ranks")
    differences = []
    for other in others:
        if hashes[other] != hashes[first]:
            names = files[first].keys() | files[other].keys()
            changed = sorted(name for name in names if files[first].get(name) != files[other].get(name))
            differences.append(f"{other} ({commits[other] or 'no git checkout'}): {join_names(changed, _MAX_ITEMS)}")
    return Finding(
        "same code", "fail", f"these files are not those of {first} ({commit}): " + "; ".join(differences),
        "ranks that run different code diverge or hang",
        "run all nodes from one shared folder, or bring all checkouts to one commit: git pull && git status",
    )  # fmt: skip


def package_finding(versions: Mapping[str, Mapping[str, str]]) -> Finding:
    """Report whether all ranks have the same versions of the packages.

    Args:
        versions: {rank's name: {package: version}}.
    """
    first, *others = versions
    names = sorted({name for found in versions.values() for name in found})
    differences = []
    for name in names:
        here = versions[first].get(name, "not installed")
        differing = [f"{versions[other].get(name, 'not installed')} on {other}" for other in others
               if versions[other].get(name, "not installed") != here]  # fmt: skip
        if differing:
            differences.append(f"{name}: {here} on {first}, {', '.join(differing)}")
    if not differences:
        listed = ", ".join(f"{name} {versions[first][name]}" for name in ("python", "torch", "lightning", "numpy"))
        equal = f"{listed} and {len(names) - 4} more are equal on all {len(versions)} ranks"
        return Finding("same packages", "ok", equal)
    return Finding(
        "same packages", "fail", "; ".join(differences),
        "another version may round, shuffle or communicate differently",
        "install the same on all nodes: pip install -e . -c constraints.txt, or use one shared environment",
    )  # fmt: skip
