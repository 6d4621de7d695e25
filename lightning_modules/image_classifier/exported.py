"""An image classifier from the directory that `train.py export` has written, without its data and without Lightning."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from lightning_modules.image_classifier.export import FORMAT, ClassifyingGraph
from lightning_modules.image_classifier.networks import Architecture


class ExportedClassifier:
    """
    Attributes:
        network: in evaluation mode; [B, C, H, W] float32 in [-1, 1] -> scores [B, K].
        classes: [K] their names.
        shape: C, H, W of its images.
    """

    def __init__(self, network: nn.Module, classes: list[str], shape: tuple[int, int, int]) -> None:
        self.network, self.classes, self.shape = network.eval(), classes, shape

    @torch.no_grad()
    def classify(self, images: Tensor) -> list[tuple[str, float]]:
        """The most probable class of each of [B, C, H, W] uint8 images, with its probability.

        Raises:
            ValueError: the images are of another shape or dtype.
        """
        if images.dtype != torch.uint8 or tuple(images.shape[1:]) != self.shape:
            raise ValueError(f"found {images.dtype} {list(images.shape)}, expected torch.uint8 [B, {self.shape}]")
        best = ClassifyingGraph(self.network)(images)[1].max(1)
        return [(self.classes[place], share) for share, place in zip(*(part.tolist() for part in best), strict=True)]


def load_classifier(folder: str | Path) -> ExportedClassifier:
    """
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
    return ExportedClassifier(network, classes, shape)
