"""Versions against each other: Python, the packages that Lockstep needs, PyTorch, CUDA, the driver, NCCL."""

import configparser
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from commands.doctor.finding import Finding
from commands.doctor.nvidia import Driver

SETUP = Path(__file__).resolve().parents[2] / "setup.cfg"
_COMPROMISED = {("lightning", "2.6.2"), ("lightning", "2.6.3")}


def python(setup: Path = SETUP, version: str = "") -> Iterator[Finding]:
    """Whether this Python is one that the project is made for.

    Args:
        setup: the project's setup.cfg, of which `python_requires` is read.
        version: of Python; empty: this one.
    """
    from packaging.specifiers import SpecifierSet

    version = version or platform.python_version()
    wanted = _options(setup)["python_requires"]
    found = f"{version}, {platform.platform(terse=True)}"
    if version in SpecifierSet(wanted):
        yield Finding("python", "ok", found)
    else:
        remedy = "python3.11 -m venv .venv && make install"
        yield Finding("python", "fail", f"{found}; {wanted} is needed", "the code uses what older ones lack", remedy)


def packages(setup: Path = SETUP, places: list[str] | None = None) -> Iterator[Finding]:
    """Whether every package that is needed is there, in a version that fits.

    Args:
        setup: the project's setup.cfg, of which `install_requires` is read.
        places: folders of installed packages; None: those of this Python.
    """
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in _options(setup)["install_requires"].splitlines() if line.strip()]
    wrong, right = [], []
    for need in wanted:
        version = installed(need.name, places)
        if version is None:
            wrong.append((f"{need.name} is not installed", need))
        elif not need.specifier.contains(version, prereleases=True):
            wrong.append((f"{need.name} {version}, but {need.specifier} is needed", need))
        else:
            right.append(f"{need.name} {version}")
        if (need.name, version) in _COMPROMISED:
            why = (
                "this release was published by attackers (GHSA-w37p-236h-pfx3): change all keys that this machine holds"
            )
            yield Finding("packages", "fail", f"{need.name} {version}", why, f"pip install '{need}'")
    for found, need in wrong:
        why = "what it is used for fails, or behaves otherwise than was tested"
        yield Finding("packages", "fail", found, why, f"pip install '{need}'")
    if not wrong:
        yield Finding("packages", "ok", ", ".join(right))


def installed(name: str, places: list[str] | None = None) -> str | None:
    """The version of a package, without importing it; None: it is not there."""
    where = {} if places is None else {"path": places}
    found = metadata.distributions(name=name, **where)
    return next((each.version for each in found), None)


def torch_and_driver(driver: Driver) -> Iterator[Finding]:
    """Whether PyTorch was built for a GPU where there is one, and for a CUDA that the driver knows."""
    import torch

    built = torch.version.cuda or (f"ROCm {torch.version.hip}" if torch.version.hip else None)
    reason = ""
    if torch.version.cuda and driver.gpus and not torch.cuda.is_available():
        try:
            torch.cuda.init()
        except Exception as error:
            reason = str(error).splitlines()[0]
    yield from judge_torch(torch.__version__, built, driver, reason)


def judge_torch(version: str, built: str | None, driver: Driver, reason: str = "") -> Iterator[Finding]:
    """What `torch_and_driver` has to say.

    Args:
        version: of PyTorch.
        built: the CUDA it was built for, as `12.6`, or `ROCm 6.4`; None: for the CPU alone.
        driver: what nvidia-smi says.
        reason: why PyTorch cannot use the GPUs although it was built for them; empty: it can.
    """
    knows = driver.cuda  # the newest CUDA that the driver can run
    index = f"https://download.pytorch.org/whl/cu{knows.replace('.', '')}" if knows else ""
    again = f"pip install --force-reinstall torch=={version.partition('+')[0]}"
    again += f" --index-url {index}  # or the next older CUDA there: pytorch.org/get-started" if knows else ""
    if built is None and driver.gpus:
        found = f"{version}, built without CUDA, on a machine with {len(driver.gpus)} GPU(s)"
        yield Finding("torch", "fail", found, "training would use the CPU alone, many times slower", again)
    elif built and knows and built[0].isdigit() and int(built.split(".")[0]) > int(knows.split(".")[0]):
        found = f"{version} is built for CUDA {built}; driver {driver.version} runs CUDA up to {knows}"
        why = "a driver runs programs of its own major version of CUDA and of older ones"
        yield Finding("torch", "fail", found, why, f"a newer driver, or {again}")
    elif reason:
        found = f"{version} for CUDA {built} cannot use the GPUs: {reason}"
        remedy = "sudo modprobe nvidia_uvm  # in a container: docker run --gpus all"
        yield Finding("torch", "fail", found, "training would use the CPU alone", remedy)
    elif built and not driver.gpus:
        made_for = built if built.startswith("ROCm") else f"CUDA {built}"
        yield Finding("torch", "ok", f"{version}, for {made_for}; no NVIDIA GPU here")
    elif built:
        yield Finding("torch", "ok", f"{version}, for CUDA {built}; driver {driver.version} runs CUDA up to {knows}")
    else:
        yield Finding("torch", "ok", f"{version}, for the CPU; no NVIDIA GPU here")


def communication() -> Iterator[Finding]:
    """Whether gloo, and on GPUs NCCL, is there, and the NCCL that PyTorch was built with."""
    import torch

    loaded = None
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        loaded = ".".join(map(str, torch.cuda.nccl.version()))
    yield from judge_nccl(loaded, *packaged_nccl(), gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if torch.distributed.is_gloo_available():
        yield Finding("gloo", "ok", "part of PyTorch")
    else:
        yield Finding("gloo", "fail", "this PyTorch was built without it", "processes agree over it, on GPUs too",
                      "pip install --force-reinstall torch")  # fmt: skip


def packaged_nccl(places: list[str] | None = None) -> tuple[str | None, str | None]:
    """The NCCL that the installed PyTorch requires, and the one that is installed as a package."""
    from packaging.requirements import Requirement

    where = {} if places is None else {"path": places}
    found = metadata.distributions(name="torch", **where)
    needs = [Requirement(line) for each in found for line in each.requires or []]
    need = next((each for each in needs if each.name.startswith("nvidia-nccl")), None)
    if need is None:
        return None, None
    pinned = next((specifier.version for specifier in need.specifier if specifier.operator == "=="), None)
    return pinned, installed(need.name, places)


def judge_nccl(loaded: str | None, pinned: str | None, package: str | None, gpus: int) -> Iterator[Finding]:
    """What there is to say about NCCL.

    Args:
        loaded: the version that answers; None: there is none, or no GPU.
        pinned: the version that PyTorch requires; None: it brings its own or has none.
        package: the version that is installed beside it.
        gpus: how many PyTorch sees.
    """
    wrong = (
        "a PyTorch with another NCCL than it was built with fails or hangs in the first collective, or on some nodes"
    )
    if gpus and loaded is None:
        yield Finding("nccl", "fail" if gpus > 1 else "warn", "this PyTorch has no NCCL",
                      "GPUs would talk over gloo, through the CPU", "pip install --force-reinstall torch")  # fmt: skip
    elif pinned and package and pinned != package:
        yield Finding("nccl", "warn", f"{package} is installed, PyTorch requires {pinned}", wrong,
                      "pip install --force-reinstall torch")  # fmt: skip
    elif loaded and package and loaded != package:
        yield Finding("nccl", "warn", f"{loaded} is loaded, the package beside PyTorch is {package}",
                      f"LD_LIBRARY_PATH or LD_PRELOAD brings in another one; {wrong}",
                      "unset LD_LIBRARY_PATH LD_PRELOAD")  # fmt: skip
    elif loaded:
        yield Finding("nccl", "ok", f"{loaded}, the one that PyTorch was built with")


def _options(setup: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(comment_prefixes=("#",))
    parser.read_string(setup.read_text(encoding="utf-8"))
    return parser["options"]
