"""Exports a trained image classifier, as a graph and as weights.

DIR/model.onnx          graph from pixels to logits and probabilities
DIR/model.safetensors   weights of the network, or their moving average if the run evaluates it
DIR/config.json         settings of the network, its classes, and the size of its images
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

from engine.export.onnx import check_close, export_onnx, run_onnx
from lightning_modules.image_classifier.networks.architecture import Architecture
from lightning_modules.image_classifier.shift_averaging import average_over_shifts

FORMAT = 1
"""Version of config.json; loaders refuse others."""

OUTPUTS = "scores", "probabilities"


class Classifier(NamedTuple):
    """What `export` writes of a trained classifier, and what `load_classifier` needs to build it again."""

    network: nn.Module
    architecture: Architecture
    classes: Sequence[str]
    """Names of the K classes, in the order of the logits."""
    shape: tuple[int, int, int]
    """Channels, height and width of an image."""
    evaluation_shift: int = 0
    """Largest shift in pixels of `average_over_shifts`."""


class ClassifyingGraph(nn.Module):
    """Classifies images with pixel values from 0 to 255, with the mean over shifts that the evaluation takes."""

    def __init__(self, network: nn.Module, evaluation_shift: int = 0) -> None:
        super().__init__()
        self.network, self.evaluation_shift = network, evaluation_shift

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and probabilities [B, K] float32 of images [B, C, H, W] uint8."""
        scores = average_over_shifts(self.network, images.float() / 127.5 - 1, self.evaluation_shift)
        return scores, scores.softmax(1)


def export_classifier(
    classifier: Classifier, folder: Path, images: NDArray[np.uint8], expected: NDArray[np.float32]
) -> str:
    """Write the three files, and compare the graph with the network.

    Args:
        classifier: classifier to export.
        folder: existing, empty directory.
        images: [B, C, H, W] uint8 images of the data.
        expected: [B, K] their logits in an evaluation.

    Returns:
        A sentence on the comparison, for the model card.

    Raises:
        ValueError: onnxruntime computes other logits.
    """
    from safetensors.torch import save_model

    network, architecture, classes, shape, evaluation_shift = classifier
    # Scaling and softmax are part of the graph, so that a program in another language passes bytes.
    graph, path = ClassifyingGraph(network, evaluation_shift), folder / "model.onnx"
    # At least two: with one image as an example the exporter fixes the batch size to 1.
    example = torch.from_numpy(np.concatenate((images[:2], images[:2]))[:2].copy())
    export_onnx(path, graph, {"images": example}, OUTPUTS, {"images": {0: torch.export.Dim("batch")}})
    checked = _compare_outputs(path, images, expected)
    save_model(network, str(folder / "model.safetensors"))
    settings = {
        "format": FORMAT,
        "architecture": asdict(architecture),
        "shape": list(shape),
        "classes": list(classes),
        "evaluation_shift": evaluation_shift,
        "inputs": ["images"],
        "outputs": list(OUTPUTS),
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    return checked


def _compare_outputs(path: Path, images: NDArray[np.uint8], expected: NDArray[np.float32]) -> str:
    """Compare on all images at once, and on the last alone, because the graph takes any number of images."""
    (scores, _), (alone, _) = run_onnx(path, {"images": images}, {"images": images[-1:]})
    difference = check_close(scores, expected, "scores")
    check_close(alone, expected[-1:], "scores of a single image")
    same = float((scores.argmax(1) == expected.argmax(1)).mean())
    return (
        f"onnxruntime and torch agree on {len(images)} validation images: their scores differ by {difference:.1g} of "
        f"the largest at most, and {same:.1%} of the images get the same class."
    )
