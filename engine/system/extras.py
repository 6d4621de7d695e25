"""Finds missing extras of setup.cfg, and the command that installs them."""

import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from typing_extensions import override

from engine.system.installation import PROJECT, SETUP

_LANGUAGE = ("transformers", "peft", "safetensors", "pyarrow", "PIL")
_DOCUMENTS = (*_LANGUAGE, "pypdfium2", "pdfplumber", "markdown_it", "bm25s", "reportlab")

MODULES: Mapping[str, tuple[str, ...]] = {
    "recommender": ("polars", "pyarrow"),
    "language": _LANGUAGE,
    "smolvlm": ("num2words",),
    "documents": _DOCUMENTS,
    "ocr": (*_DOCUMENTS, "rapidocr_onnxruntime"),
    "ray": (*_DOCUMENTS, "ray"),
    "images": ("sklearn", "matplotlib", "PIL"),
    "onnx": ("onnx", "onnxruntime", "onnxscript", "safetensors"),
    "faiss": ("faiss",),
    "large": ("polars", "duckdb", "pyarrow"),
    "monitoring": ("prometheus_client", "pynvml"),
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "bits": ("bitsandbytes",),
    "liger": ("liger_kernel",),
    "sweep": ("optuna",),
    "demo": ("starlette", "uvicorn", "prompt_toolkit", "PIL"),
}
"""{extra of setup.cfg: modules of its packages}"""

_PACKAGES = {
    "faiss": "faiss-cpu",
    "PIL": "pillow",
    "markdown_it": "markdown-it-py",
    "rapidocr_onnxruntime": "rapidocr-onnxruntime",
    "sklearn": "scikit-learn",
    "prometheus_client": "prometheus-client",
    "pynvml": "nvidia-ml-py",
    "mlflow": "mlflow-skinny",
    "liger_kernel": "liger-kernel",
}
"""{module: package}, if the names differ."""


class MissingPackagesError(ValueError):
    """Packages that a run needs are not installed.

    Args:
        lacking: the missing packages and what needs them.
        command: the command that installs them.
    """

    def __init__(self, lacking: str, command: str) -> None:
        super().__init__(lacking, command)
        self.lacking, self.command = lacking, command

    @override
    def __str__(self) -> str:
        return f"{self.lacking}:\n{self.command}"


def require_extras(needs: Mapping[str, str]) -> None:
    """Check that the packages of extras are installed.

    Args:
        needs: {extra: what needs it, as written in the config}.

    Raises:
        MissingPackagesError: a package is missing.
    """
    missing = {extra: modules for extra in needs if (modules := missing_modules(extra))}
    if missing:
        users = list(dict.fromkeys(needs[extra] for extra in missing))
        packages = sorted({_package(module) for modules in missing.values() for module in modules})
        verb = "need" if users[1:] else "needs"
        lacking = f"{_join_words(users)} {verb} {_join_words(packages)}, not installed here"
        raise MissingPackagesError(lacking, install_command(missing))


def explain_import_error(error: BaseException) -> BaseException:
    """Return MissingPackagesError if `error` is a failed import of an extra's module, otherwise `error` itself."""
    module = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    extra = next((name for name, modules in MODULES.items() if module in modules), None)
    # An installed module that fails to import is another problem than a missing package.
    if extra is None or find_spec(module) is not None:
        return error
    return MissingPackagesError(f"{_package(module)} is not installed here", install_command([extra]))


def missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that cannot be imported."""
    # `find_spec` imports nothing, whereas importing some of these packages takes seconds.
    return [module for module in MODULES[extra] if find_spec(module) is None]


def install_command(extras: Collection[str]) -> str:
    """Return the shell command that installs the packages of some extras, for the current folder.

    Outside of a checkout the packages are listed one by one, because PyPI has another project of this name.
    """
    pip, names = _pip(), ",".join(extras)
    if SETUP.is_file():
        folder = "." if Path.cwd() == PROJECT else str(PROJECT)
        return f"{pip} install '{folder}[{names}]'"
    return f"{pip} install {shlex.join(_requirements(extras))}"


def _pip() -> str:
    """Return the pip of this environment, as a path if another pip comes first on the PATH."""
    # Another environment's pip would install the packages where this Python does not find them.
    local_pip = Path(sys.executable).with_name("pip")
    pip = shutil.which("pip")
    if not local_pip.is_file() or (pip and Path(pip).parent == local_pip.parent):
        return "pip"
    return str(local_pip.relative_to(Path.cwd()) if local_pip.is_relative_to(Path.cwd()) else local_pip)


def _requirements(extras: Collection[str]) -> list[str]:
    """Return the missing requirements, with the versions of the installed package's metadata."""
    missing_packages = {_package(module) for extra in extras for module in missing_modules(extra)}
    requirements = dict.fromkeys(
        # A requirement is `NAME>=VERSION; extra == "..."`.
        line.partition(";")[0].strip()
        for line in metadata.requires("lockstep") or []
        if (name := re.match(r"[\w.-]+", line)) and name[0].lower() in missing_packages
    )
    return list(requirements)


def _package(module: str) -> str:
    return _PACKAGES.get(module, module)


def _join_words(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
