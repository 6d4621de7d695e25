"""Exports networks as ONNX files, and compares their outputs by onnxruntime."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def export_onnx(
    path: Path,
    network: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    axes: Mapping[str, Mapping[int, Any]],
) -> None:
    """Export a network as an ONNX graph.

    Args:
        path: file to write.
        network: the network; it is set to evaluation mode.
        inputs: {argument of `forward`: example}. The exporter may treat dimensions of size 1 as fixed.
        outputs: names for the tuple of tensors that `forward` returns.
        axes: {input: {dimension of variable size: torch.export.Dim}}.
    """
    # optimize=False: onnxscript treats every constant below 1e-8 as zero and removes it, so a division by a norm may
    # give NaN. onnxruntime optimizes at load time anyway.
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            network.eval(), (), None, kwargs=dict(inputs), output_names=list(outputs),
            dynamic_shapes={name: dict(axes.get(name, {})) for name in inputs}, dynamo=True, optimize=False,
            verbose=False,
        )  # fmt: skip
    assert program is not None, "torch returns None only for dynamo=False"
    _clear_metadata(program.model)
    program.save(str(path))


def run_onnx(path: Path, *batches: Mapping[str, NDArray[Any]]) -> list[list[NDArray[Any]]]:
    """Return the outputs of the graph for each batch. Inputs that the graph does not have are ignored."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # onnxruntime refuses names that the graph does not have.
    names = {node.name for node in session.get_inputs()}
    return [session.run(None, {name: batch[name] for name in batch if name in names}) for batch in batches]


def check_close(actual: NDArray[Any], expected: NDArray[Any], name: str, allowed: float = 1e-4) -> float:
    """Return the largest difference of two arrays, relative to the largest expected magnitude.

    Args:
        actual: output of onnxruntime.
        expected: output of torch.
        name: name of the output, for the message.
        allowed: largest relative difference.

    Raises:
        ValueError: the difference is larger, or an array has a NaN.
    """
    with np.errstate(invalid="ignore"):
        difference = float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-30))
    if not difference <= allowed:  # also True for NaN
        raise ValueError(
            f"export: {name} by onnxruntime differ from torch's by {difference:.2g} of the largest, expected at most "
            f"{allowed:g}: nothing was written. Try the versions of onnxruntime and torch in constraints.txt, which "
            "the tests use"
        )
    return difference


def _clear_metadata(model: Any) -> None:
    """Remove the source file and line of each node: half of the size of a small graph, and paths of this machine."""
    for graph in (model.graph, *model.functions.values()):
        if any(node.op_type == "GRU" for node in graph.all_nodes()):
            _clear_shapes(graph)
        for node in graph.all_nodes():
            node.metadata_props.clear()


def _clear_shapes(graph: Any) -> None:
    """Remove the shapes of values inside a graph, which onnxruntime infers itself.

    torch fixes the shapes behind a GRU to the length of the example, and onnxruntime warns of every other length.
    """
    # The shapes of inputs and outputs are the graph's interface, and stay.
    outputs = set(graph.outputs)
    for node in graph.all_nodes():
        for value in node.outputs:
            if value not in outputs:
                value.shape = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks on packages that are not installed and on dimensions with equal names."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(level)
