"""The networks of the image classifier, by what they are built from."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from lightning_modules.image_classifier.norm import Norm
from lightning_modules.image_classifier.resnet import ResNet18
from lightning_modules.image_classifier.vit import VisionTransformer

Kind = Literal["resnet18", "vit"]


@dataclass(frozen=True)
class Architecture:
    """See ImageClassifier."""

    network: Kind
    width: int
    norm: Norm
    patch_size: int
    depth: int
    heads: int

    def build(self, shape: tuple[int, int, int], classes: int) -> nn.Module:
        """A network for images of the shape C, H, W: [B, C, H, W] float32 in [-1, 1] -> scores [B, classes]."""
        channels, size, _ = shape
        if self.network == "resnet18":
            return ResNet18(channels, classes, self.width, self.norm)
        return VisionTransformer(channels, size, classes, self.patch_size, self.width, self.depth, self.heads)
