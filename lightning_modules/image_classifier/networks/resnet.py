"""Implements ResNet-18 for small images: a 3 x 3 stem of stride 1, and no pooling but the last.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016: the blocks of table 1, the stem of section 4.2.
"""

import torch
from torch import Tensor, nn
from typing_extensions import override

from lightning_modules.image_classifier.networks.normalization import Norm, build_norm


class ResNet18(nn.Module):
    """Maps images [B, C, H, W] to logits [B, classes].

    Args:
        channels: channels C of the images.
        classes: number of classes.
        width: channels of the first stage, doubled by each of the next three.
        norm: normalization layers, see normalization.py.
    """

    def __init__(self, channels: int, classes: int, width: int = 64, norm: Norm = "group") -> None:
        super().__init__()
        self.stem = nn.Sequential(_convolution(channels, width), build_norm(norm, width), nn.ReLU())
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = []
        for stage, (before, after) in enumerate(zip(widths, widths[1:], strict=False)):
            # Each stage but the first halves the resolution and doubles the channels.
            blocks += [ResidualBlock(before, after, 2 if stage else 1, norm), ResidualBlock(after, after, 1, norm)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)

    @override
    def forward(self, images: Tensor) -> Tensor:
        # [B, C, H, W] -> [B, width, H, W] -> [B, 8 width, H / 8, W / 8] -> [B, 8 width] -> [B, classes]
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


class ResidualBlock(nn.Module):
    """Residual block of two convolutions: [B, before, H, W] -> [B, after, H / stride, W / stride].

    The weights of the last norm start at zero, so that the block starts as its shortcut (Goyal et al., "Accurate, Large
    Minibatch SGD", 2017, section 5.1).
    """

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        last = build_norm(norm, after)
        self.inner = nn.Sequential(
            _convolution(before, after, stride), build_norm(norm, after), nn.ReLU(), _convolution(after, after), last
        )
        nn.init.zeros_(last.weight)
        self.around: nn.Module = nn.Identity()
        # Exactly the blocks that halve the resolution change the channels.
        if before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), build_norm(norm, after))

    @override
    def forward(self, states: Tensor) -> Tensor:
        return torch.relu(self.inner(states) + self.around(states))


def _convolution(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    # No bias is needed: the norm after the convolution adds one.
    convolution = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution
