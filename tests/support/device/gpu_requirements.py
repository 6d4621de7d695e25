"""Tells whether this Python can run the tests of a GPU: `python -m tests.support.device.gpu_requirements`.

Ends with 2 and one line if a package or a CUDA device is missing.
"""

import sys
from importlib.util import find_spec

# What the tests import besides torch; a family that needs another package is skipped where that is missing.
PACKAGES = (
    "torch",
    "lightning",
    "torchmetrics",
    "tensorboard",
    "yaml",
    "jsonargparse",
    "docstring_parser",
    "typeshed_client",
    "numpy",
    "rich",
    "psutil",
    "filelock",
    "pytest",
    "pytest_timeout",
    "hypothesis",
)


def problem() -> str | None:
    """Return what is missing, or None."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        return f"{sys.executable} lacks {', '.join(missing)}: make install, or CONTRIBUTING.md, A machine with a GPU"
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} of {sys.executable} finds no CUDA device, so nothing is tested"
    return None


if __name__ == "__main__":
    found = problem()
    if found:
        print(f"test-gpu: {found}", file=sys.stderr)
        sys.exit(2)
