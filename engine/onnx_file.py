"""Networks as ONNX files: written with torch's exporter, and run with onnxruntime to see that they compute the same."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

PACKAGES = "onnx", "onnxscript", "onnxruntime"


def require_onnx() -> None:
    """Raises ValueError when a package that is needed is not installed."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ValueError(f"an export to ONNX needs {', '.join(missing)}: pip install -e '.[onnx]'")


def write_onnx(
    path: Path,
    network: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, Any]],
) -> None:
    """Writes a network as a graph.

    Args:
        inputs: an example by the names of `forward`'s arguments; dimensions of one element may be taken for fixed.
        outputs: names for what `forward` returns, a tuple of tensors.
        axes: of each input the dimensions of any size, as torch.export.Dim.
    """
    # Not optimized: onnxscript's matcher takes every constant below 1e-8 for zero and drops the term, so what is
    # divided by a norm may become NaN. onnxruntime optimizes when it loads a file anyway.
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            network.eval(), (), None, kwargs=dict(inputs), output_names=list(outputs),
            dynamic_shapes={name: dict(axes.get(name, {})) for name in inputs}, dynamo=True, optimize=False,
            verbose=False,
        )  # fmt: skip
    _forget_sources(program.model)
    program.save(str(path))


def run_onnx(path: Path, *batches: Mapping[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
    """What the graph gives for each batch, in the order of its outputs; inputs that it does not have are left out."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    return [session.run(None, {name: batch[name] for name in batch if name in names}) for batch in batches]


def require_close(found: NDArray[Any], expected: NDArray[Any], what: str, allowed: float = 1e-4) -> float:
    """The largest difference of two arrays, relative to the largest number expected.

    Raises:
        ValueError: it is larger than allowed, or one has a NaN.
    """
    with np.errstate(invalid="ignore"):
        difference = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))
    if not difference <= allowed:  # also where it is NaN
        raise ValueError(
            f"export: {what} by onnxruntime differ from torch's by {difference:.2g} of the largest, expected at most "
            f"{allowed:g}: nothing was written. Another version of onnxruntime or torch may agree (constraints.txt "
            "has those that the tests run with)"
        )
    return difference


def _forget_sources(model: Any) -> None:
    """Takes out where in which file of this machine each node comes from: half of a small graph."""
    for graph in (model.graph, *model.functions.values()):
        for node in graph.all_nodes():
            node.metadata_props.clear()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of packages that are not there and of names of dimensions that are alike."""
    exporter = logging.getLogger("torch.onnx._internal.exporter")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)
