"""Writes a trained image classifier for other programs, once as a graph and once as weights.

    DIR/model.onnx          from pixels to scores and probabilities
    DIR/model.safetensors   the network's weights, or their moving average where that is evaluated
    DIR/config.json         how the network is built, its classes, and the size of its images
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engine.onnx_file import require_close, require_onnx, run_onnx, write_onnx
from lightning_modules.image_classifier.networks import Architecture

FORMAT = 1
"""Of config.json; another number, and a loader refuses it."""

OUTPUTS = "scores", "probabilities"


class Classifier(NamedTuple):
    """What is exported."""

    network: nn.Module
    architecture: Architecture
    classes: Sequence[str]
    shape: tuple[int, int, int]  # C, H, W


class ClassifyingGraph(nn.Module):
    """From pixels as files have them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """[B, C, H, W] uint8 -> scores and probabilities [B, K] float32."""
        scores = self.network(images.float() / 127.5 - 1)
        return scores, scores.softmax(1)


def export(classifier: Classifier, folder: Path, images: NDArray[np.uint8], expected: NDArray[np.float32]) -> str:
    """Writes the three files into a folder that is there, and compares graph and network.

    Args:
        images: [B, C, H, W] real ones.
        expected: [B, K] their scores as an evaluation computes them.

    Returns:
        What was compared, in a sentence.

    Raises:
        ValueError: a package is missing, or onnxruntime computes something else.
    """
    from safetensors.torch import save_model

    require_onnx()
    network, architecture, classes, shape = classifier
    graph, path = ClassifyingGraph(network), folder / "model.onnx"
    # Two at least: an example of one image would make the graph one of single images.
    example = torch.from_numpy(np.concatenate((images[:2], images[:2]))[:2].copy())
    write_onnx(path, graph, {"images": example}, OUTPUTS, {"images": {0: torch.export.Dim("batch")}})
    checked = _compared(path, images, expected)
    save_model(network, str(folder / "model.safetensors"))
    settings = {
        "format": FORMAT,
        "architecture": asdict(architecture),
        "shape": list(shape),
        "classes": list(classes),
        "inputs": ["images"],
        "outputs": list(OUTPUTS),
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    return checked


def _compared(path: Path, images: NDArray[np.uint8], expected: NDArray[np.float32]) -> str:
    """Of all images at once, and of the last one by itself: the graph takes any number of them."""
    (scores, _), (alone, _) = run_onnx(path, {"images": images}, {"images": images[-1:]})
    difference = require_close(scores, expected, "scores")
    require_close(alone, expected[-1:], "scores of a single image")
    same = float((scores.argmax(1) == expected.argmax(1)).mean())
    return (
        f"onnxruntime and torch agree on {len(images)} validation images: their scores differ by {difference:.1g} of "
        f"the largest at most, and {same:.1%} of the images get the same class."
    )
