"""What must be the same on all nodes of a training: the program's source, and the packages that compute."""

import hashlib
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from commands.doctor.finding import Finding

PROJECT = Path(__file__).resolve().parents[2]

_SOURCE = ("train.py", "commands", "callbacks", "engine", "datamodules", "lightning_modules", "configs")
_PACKAGES = (
    "torch", "lightning", "torchmetrics", "numpy", "jsonargparse", "transformers", "tokenizers", "peft", "safetensors",
    "polars", "pyarrow", "pillow", "bitsandbytes", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
_NAMED = 5  # files


def source_files(project: Path = PROJECT) -> dict[str, str]:
    """{path in the project: hash} of all that a training runs."""
    return {path.relative_to(project).as_posix(): _hash(path) for path in _source(project)}


def _source(project: Path) -> Iterator[Path]:
    for name in _SOURCE:
        place = project / name
        found = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (path for path in found if path.suffix in (".py", ".yaml") and path.is_file())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def whole_hash(files: Mapping[str, str]) -> str:
    """One figure for all files."""
    return hashlib.sha256("\n".join(f"{name} {files[name]}" for name in sorted(files)).encode()).hexdigest()[:12]


def commit(project: Path = PROJECT) -> str:
    """The checkout's commit, with `-dirty` when it has changes; empty outside a checkout or without git."""
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def packages() -> dict[str, str]:
    """{package: version} of Python and what computes; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def code_finding(
    hashes: Mapping[str, str], commits: Mapping[str, str], files: Mapping[str, Mapping[str, str]]
) -> Finding:
    """
    Args:
        hashes: of all source files together, by the name of the process.
        commits: by the name of the process.
        files: {process: {file: hash}}; only needed where `hashes` differ.
    """
    first, *others = hashes
    said = f"commit {commits[first]}" if commits[first] else "no git checkout"
    if len(set(hashes.values())) == 1:
        return Finding("same code", "ok", f"{said}, source {hashes[first]} on all {len(hashes)} processes")
    told = []
    for other in others:
        if hashes[other] != hashes[first]:
            names = files[first].keys() | files[other].keys()
            changed = sorted(name for name in names if files[first].get(name) != files[other].get(name))
            more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
            told.append(f"{other} ({commits[other] or 'no git checkout'}): {', '.join(changed[:_NAMED])}{more}")
    return Finding(
        "same code", "fail", f"these files are not those of {first} ({said}): " + "; ".join(told),
        "processes that compute something else diverge, or wait for each other for ever",
        "run all nodes from one shared folder, or bring all checkouts to one commit: git pull && git status",
    )  # fmt: skip


def package_finding(versions: Mapping[str, Mapping[str, str]]) -> Finding:
    """
    Args:
        versions: {process: {package: version}}.
    """
    first, *others = versions
    names = sorted({name for found in versions.values() for name in found})
    told = []
    for name in names:
        here = versions[first].get(name, "not installed")
        odd = [f"{versions[other].get(name, 'not installed')} on {other}" for other in others
               if versions[other].get(name, "not installed") != here]  # fmt: skip
        if odd:
            told.append(f"{name}: {here} on {first}, {', '.join(odd)}")
    if not told:
        named = ", ".join(f"{name} {versions[first][name]}" for name in ("python", "torch", "lightning", "numpy"))
        alike = f"{named} and {len(names) - 4} more alike on all {len(versions)} processes"
        return Finding("same packages", "ok", alike)
    return Finding(
        "same packages", "fail", "; ".join(told),
        "another version rounds, shuffles or talks to the others in another way",
        "install the same on all nodes: pip install -e . -c constraints.txt, or use one shared environment",
    )  # fmt: skip
