"""Loads an exported image classifier, without its data or Lightning."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from lightning_modules.image_classifier.export.onnx_export import FORMAT, ClassifyingGraph
from lightning_modules.image_classifier.networks.architecture import Architecture


class ExportedClassifier:
    """Classifies images with an exported network.

    Attributes:
        network: the network, in evaluation mode; [B, C, H, W] float32 in [-1, 1] -> logits [B, K].
        classes: names of the K classes.
        shape: C, H, W of the images.
        evaluation_shift: probabilities are the mean over shifts by up to so many pixels.
    """

    def __init__(
        self, network: nn.Module, classes: list[str], shape: tuple[int, int, int], evaluation_shift: int = 0
    ) -> None:
        self.network, self.classes, self.shape = network.eval(), classes, shape
        self.evaluation_shift = evaluation_shift

    @torch.no_grad()
    def classify(self, images: Tensor) -> list[tuple[str, float]]:
        """Return the most probable class and its probability for each image [B, C, H, W] uint8.

        Raises:
            ValueError: the images have another shape or dtype.
        """
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"found {images.dtype} {list(images.shape)}, expected torch.uint8 [B, {self.shape}]")
        best = ClassifyingGraph(self.network, self.evaluation_shift)(images)[1].max(1)
        return [(self.classes[label], share) for share, label in zip(*(part.tolist() for part in best), strict=True)]


def load_classifier(folder: str | Path) -> ExportedClassifier:
    """Load an image classifier from the folder of an export.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: config.json is of another format, or the weights do not fit it.
    """
    from safetensors.torch import load_file

    folder = Path(folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if settings.get("format") != FORMAT:
        raise ValueError(
            f"{folder / 'config.json'}: found format {settings.get('format')!r}, expected {FORMAT}: export it again"
        )
    shape, classes = tuple(settings["shape"]), settings["classes"]
    network = Architecture(**settings["architecture"]).build(shape, len(classes))
    try:
        network.load_state_dict(load_file(folder / "model.safetensors"))
    except RuntimeError as error:
        raise ValueError(f"{folder / 'model.safetensors'} does not fit config.json: {error}") from error
    # Exports of earlier versions have no shifts.
    return ExportedClassifier(network, classes, shape, settings.get("evaluation_shift", 0))
