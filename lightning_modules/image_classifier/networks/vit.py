"""Implements a small Vision Transformer, whose head reads the mean over all tokens.

Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021; the mean instead of a class token: Beyer et al., "Better
plain ViT baselines for ImageNet-1k", 2022.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override


class VisionTransformer(nn.Module):
    """Maps images [B, C, S, S] to logits [B, classes].

    Args:
        channels: channels C of the images.
        size: height and width S of the images.
        classes: number of classes.
        patch: height and width of a patch; divides S.
        width: width of the tokens.
        depth: number of blocks.
        heads: number of attention heads; divides the width.

    Raises:
        ValueError: the patch or the heads do not divide their size.
    """

    def __init__(
        self, channels: int, size: int, classes: int, patch: int = 4, width: int = 192, depth: int = 6, heads: int = 3
    ) -> None:
        super().__init__()
        if size % patch or width % heads:
            raise ValueError(
                f"model.init_args: found patch_size {patch} for images of {size} pixels and heads {heads} for width "
                f"{width}, expected whole patches and heads"
            )
        self.patches = nn.Conv2d(channels, width, patch, patch)  # a linear map of each patch
        self.positions = nn.Parameter(torch.empty((size // patch) ** 2, width).normal_(std=0.02))
        self.blocks = nn.Sequential(*(TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    @override
    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions  # [B, T, width]
        # [B, T, width] -> [B, width] -> [B, classes]
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class TransformerBlock(nn.Module):
    """Block of attention and feed-forward, with norms before both: [B, T, width] -> [B, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self._attention(self.norm_1(tokens))
        return tokens + self.feed_forward(self.norm_2(tokens))

    def _attention(self, tokens: Tensor) -> Tensor:
        # [B, T, 3 width] -> query, key and value of [B, heads, T, width / heads]
        parts = self.queries_keys_values(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.output(scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
