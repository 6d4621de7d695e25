"""Checks versions: Python, required packages, PyTorch, CUDA, driver, NCCL."""

import configparser
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from commands.doctor.check import Finding
from commands.doctor.machine.nvidia_smi import Driver
from engine.io.error_line import first_line
from engine.system.installation import SETUP

_COMPROMISED = {("lightning", "2.6.2"), ("lightning", "2.6.3")}


def check_python(setup: Path = SETUP, version: str = "") -> Iterator[Finding]:
    """Check the version of Python.

    Args:
        setup: setup.cfg of the checkout, for `python_requires`; without it the metadata of the installed package.
        version: version of Python; empty: the running version.
    """
    from packaging.specifiers import SpecifierSet

    version = version or platform.python_version()
    required, _ = _requirements(setup)
    found = f"{version}, {platform.platform(terse=True)}"
    if version in SpecifierSet(required):
        yield Finding("python", "ok", found)
    else:
        remedy = "python3.11 -m venv .venv && make install"
        yield Finding(
            "python", "fail", f"{found}; {required} is required", "the code uses features of newer versions", remedy
        )


def check_packages(setup: Path = SETUP, search_path: list[str] | None = None) -> Iterator[Finding]:
    """Check that every required package is installed in a supported version.

    Args:
        setup: setup.cfg of the checkout, for `install_requires`; without it the metadata of the installed package.
        search_path: directories of installed packages; None: `sys.path`.
    """
    from packaging.requirements import Requirement

    needs = [Requirement(line) for line in _requirements(setup)[1]]
    required = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong, right = [], []
    for need in required:
        version = installed_version(need.name, search_path)
        if version is None:
            wrong.append((f"{need.name} is not installed", need))
        elif not need.specifier.contains(version, prereleases=True):
            wrong.append((f"{need.name} {version}, but {need.specifier} is required", need))
        else:
            right.append(f"{need.name} {version}")
        if (need.name, version) in _COMPROMISED:
            why = (
                "this release was published by attackers (GHSA-w37p-236h-pfx3): change all keys that this machine holds"
            )
            yield Finding("packages", "fail", f"{need.name} {version}", why, f"pip install '{need}'")
    for found, need in wrong:
        why = "the features that use it fail or are untested"
        yield Finding("packages", "fail", found, why, f"pip install '{need}'")
    if not wrong:
        yield Finding("packages", "ok", ", ".join(right))


def installed_version(name: str, search_path: list[str] | None = None) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    return next((each.version for each in _distributions(name, search_path)), None)


def _distributions(name: str, search_path: list[str] | None) -> Iterable[metadata.Distribution]:
    return metadata.distributions(name=name, path=sys.path if search_path is None else search_path)


def check_torch_and_driver(driver: Driver) -> Iterator[Finding]:
    """Check that PyTorch was built for CUDA on a machine with GPUs, and for a version that the driver supports."""
    import torch

    built = torch.version.cuda or (f"ROCm {torch.version.hip}" if torch.version.hip else None)
    reason = ""
    if torch.version.cuda and driver.gpus and not torch.cuda.is_available():
        try:
            # is_available() hides the reason, which the initialization raises.
            torch.cuda.init()
        except Exception as error:
            reason = first_line(error)
    yield from check_torch(torch.__version__, built, driver, reason)


def check_torch(version: str, built: str | None, driver: Driver, reason: str = "") -> Iterator[Finding]:
    """Yield the findings of `check_torch_and_driver`.

    Args:
        version: version of PyTorch.
        built: CUDA version that it was built for, as `12.6`, or `ROCm 6.4`; None: built for the CPU.
        driver: output of nvidia-smi.
        reason: why PyTorch cannot use the GPUs although it was built for them; empty if it can.
    """
    newest = driver.cuda
    index = f"https://download.pytorch.org/whl/cu{newest.replace('.', '')}" if newest else ""
    again = f"pip install --force-reinstall torch=={version.partition('+')[0]}"
    again += f" --index-url {index}  # or the next older CUDA there: pytorch.org/get-started" if newest else ""
    if built and not built[0].isdigit() and driver.gpus:
        found = f"{version} is built for {built}, on a machine with {len(driver.gpus)} NVIDIA GPU(s)"
        yield Finding("torch", "warn", found, "training does not use the NVIDIA GPUs", again)
    elif built is None and driver.gpus:
        found = f"{version}, built without CUDA, on a machine with {len(driver.gpus)} GPU(s)"
        yield Finding("torch", "fail", found, "training would use the CPU, many times slower", again)
    elif built and newest and built[0].isdigit() and int(built.split(".")[0]) > int(newest.split(".")[0]):
        found = f"{version} is built for CUDA {built}; driver {driver.version} runs CUDA up to {newest}"
        why = "a driver supports its own major version of CUDA and older versions"
        yield Finding("torch", "fail", found, why, f"a newer driver, or {again}")
    elif reason:
        found = f"{version} for CUDA {built} cannot use the GPUs: {reason}"
        remedy = "sudo modprobe nvidia_uvm  # in a container: docker run --gpus all"
        yield Finding("torch", "fail", found, "training would use the CPU", remedy)
    elif built and not driver.gpus:
        target = f"CUDA {built}" if built[0].isdigit() else built
        yield Finding("torch", "ok", f"{version}, for {target}; no NVIDIA GPU here")
    elif built:
        yield Finding("torch", "ok", f"{version}, for CUDA {built}; driver {driver.version} runs CUDA up to {newest}")
    else:
        yield Finding("torch", "ok", f"{version}, for the CPU; no NVIDIA GPU here")


def check_backends() -> Iterator[Finding]:
    """Check that gloo and, with GPUs, the NCCL that PyTorch was built with are available."""
    import torch

    loaded = None
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        loaded = ".".join(map(str, torch.cuda.nccl.version()))
    yield from check_nccl(loaded, *packaged_nccl(), gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if torch.distributed.is_gloo_available():
        yield Finding("gloo", "ok", "part of PyTorch")
    else:
        yield Finding("gloo", "fail", "this PyTorch was built without it", "ranks use it with GPUs too",
                      "pip install --force-reinstall torch")  # fmt: skip


def packaged_nccl(search_path: list[str] | None = None) -> tuple[str | None, str | None]:
    """Return the NCCL version that the installed PyTorch requires, and the version of the installed package."""
    from packaging.requirements import Requirement

    needs = [Requirement(line) for each in _distributions("torch", search_path) for line in each.requires or []]
    need = next((each for each in needs if each.name.startswith("nvidia-nccl")), None)
    if need is None:
        return None, None
    pinned = next((specifier.version for specifier in need.specifier if specifier.operator == "=="), None)
    return pinned, installed_version(need.name, search_path)


def check_nccl(loaded: str | None, pinned: str | None, package: str | None, gpus: int) -> Iterator[Finding]:
    """Yield the findings about NCCL.

    Args:
        loaded: version that PyTorch has loaded; None without NCCL or GPUs.
        pinned: version that PyTorch requires; None if it is built in or absent.
        package: version of the installed package.
        gpus: GPUs that PyTorch sees.
    """
    wrong = "PyTorch with a different NCCL than it was built with may fail or hang in a collective"
    if gpus and loaded is None:
        yield Finding("nccl", "fail" if gpus > 1 else "warn", "this PyTorch has no NCCL",
                      "GPUs would use gloo, through the CPU", "pip install --force-reinstall torch")  # fmt: skip
    elif pinned and package and pinned != package:
        yield Finding("nccl", "warn", f"{package} is installed, PyTorch requires {pinned}", wrong,
                      "pip install --force-reinstall torch")  # fmt: skip
    elif loaded and package and loaded != package:
        yield Finding("nccl", "warn", f"{loaded} is loaded, the package beside PyTorch is {package}",
                      f"LD_LIBRARY_PATH or LD_PRELOAD selects it; {wrong}",
                      "unset LD_LIBRARY_PATH LD_PRELOAD")  # fmt: skip
    elif loaded:
        yield Finding("nccl", "ok", f"{loaded}, as PyTorch was built with")


def _requirements(setup: Path) -> tuple[str, list[str]]:
    """Return `python_requires` and `install_requires`, from setup.cfg or the metadata of the installed package."""
    if not setup.is_file():
        return metadata.metadata("lockstep")["Requires-Python"], metadata.requires("lockstep") or []
    parser = configparser.ConfigParser(comment_prefixes=("#",))
    parser.read_string(setup.read_text(encoding="utf-8"))
    listed = parser["options"]["install_requires"].splitlines()
    return parser["options"]["python_requires"], [line for line in listed if line.strip()]
