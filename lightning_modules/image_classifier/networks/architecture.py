"""Builds the image classifier's networks from their settings."""

from dataclasses import dataclass
from typing import Literal

from lightning_modules.image_classifier.networks.normalization import Norm
from lightning_modules.image_classifier.networks.resnet import ResNet18
from lightning_modules.image_classifier.networks.vit import VisionTransformer

Kind = Literal["resnet18", "vit"]


@dataclass(frozen=True)
class Architecture:
    """Settings of a network, see ImageClassifier."""

    network: Kind
    width: int
    norm: Norm
    patch_size: int
    depth: int
    heads: int

    def build(self, shape: tuple[int, int, int], classes: int) -> ResNet18 | VisionTransformer:
        """Return a network that maps images [B, C, H, W] float32 in [-1, 1] to logits [B, classes]."""
        channels, size, _ = shape
        if self.network == "resnet18":
            return ResNet18(channels, classes, self.width, self.norm)
        return VisionTransformer(
            channels=channels,
            size=size,
            classes=classes,
            patch=self.patch_size,
            width=self.width,
            depth=self.depth,
            heads=self.heads,
        )
