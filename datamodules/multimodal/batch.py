"""Defines batches of the multimodal families: chats as rows of tokens.

A chat contains *placeholders*: tokens that stand for the feature vectors of another modality (a series, an image), one
token per vector. The data side knows their number, and the model side inserts the features. All arrays of features
follow the order of the placeholders, row by row from the left.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.data.sample_loading import SkippedSample

IGNORE = -100
"""Label of a token that is not supervised."""

_IDEFICS3_MAX_EDGE = 4096  # pixels of the longer edge of an image


class Chat(NamedTuple):
    """A chat of n tokens, encoded but not yet packed into rows."""

    tokens: NDArray[np.int64]  # [n]
    supervised: NDArray[np.bool_]  # [n] the turns of the assistant, including the end-of-turn token
    placeholders: int  # number of placeholder tokens


class Counts(NamedTuple):
    """Numbers of tokens. They are Python numbers, so reading them does not synchronize with the device."""

    real: int = 0  # not padding
    supervised: int = 0
    features: int = 0  # placeholders
    pairs: int = 0  # ordered pairs of tokens of the same chat


class TokenRows(NamedTuple):
    """S chats in R rows of L tokens. A row holds one or several chats in sequence, and is padded on the right."""

    tokens: Tensor  # [R, L] int64, padded with the padding token
    labels: Tensor  # [R, L] int64, the token itself where it is supervised, else IGNORE; not shifted
    positions: Tensor  # [R, L] int64, from 0 in every chat; padding counts from 0 like a chat of its own
    samples: Tensor  # [S] int64, sample of each chat, in the order of the rows; padding samples are absent
    placeholders: Tensor  # [S] int64, placeholders of each chat
    counts: Counts = Counts()  # sum over all rows

    @property
    def lengths(self) -> Tensor:
        """Number of tokens [R] int64 of the first chat of each row."""
        begins = self.positions[:, 1:] == 0  # of a next chat, or of the padding
        return torch.where(begins.any(dim=1), begins.int().argmax(dim=1) + 1, self.positions.shape[1])


class Prompts(NamedTuple):
    """B chats up to the start of the assistant's turn, padded on the left."""

    tokens: Tensor  # [B, L] int64
    mask: Tensor  # [B, L] bool, true where there is a token
    samples: Tensor  # [B] int64
    placeholders: Tensor  # [B] int64


class ChatTrainBatch(NamedTuple):
    """Chats for training."""

    rows: TokenRows
    encoder_input: Any  # input of the family's encoder, in the order of `rows.samples`
    skipped: tuple[SkippedSample, ...] = ()


class ChatEvaluationBatch(NamedTuple):
    """The same chats in two forms, in the same order: complete, to be scored, and as prompts, to be answered."""

    rows: TokenRows  # one chat per row; no token is supervised if the answer is unknown
    prompts: Prompts
    encoder_input: Any  # input of the family's encoder
    skipped: tuple[SkippedSample, ...] = ()


Tiling = Literal["tile_positions", "llava_next", "idefics3"]
"""How an image becomes views, and the order of their embeddings: Lockstep's, or a transformers class's.

`tile_positions` is Lockstep's own: the views of an image in the order of their positions, each after the embedding of
its position. The weight `places.weight` of checkpoints keeps its name, so that runs stay valid.
"""


class ImageLayout(NamedTuple):
    """Layout of an image, shared by vision tower, projector and data.

    An image has a single *view*, or a view of the whole and its tiles.
    """

    size: int  # edge of a square view, in pixels
    tokens: int  # embeddings per view
    max_tiles: int = 1  # maximum number of tiles along each edge; 1 disables tiling
    background: tuple[int, int, int] = (128, 128, 128)  # RGB of padding, close to the mean that the tower subtracts
    tiling: Tiling = "tile_positions"

    @property
    def view_tokens(self) -> int:
        """Embeddings per view under the tiling `tile_positions`, including a position embedding if images are tiled."""
        return self.tokens + (self.max_tiles > 1)

    @property
    def num_learned(self) -> int:
        """Number of learned vectors that are placed among the features of images."""
        tiles = self.max_tiles**2 if self.max_tiles > 1 else 0
        if self.tiling == "llava_next":
            return 1  # the end of a line
        if self.tiling == "idefics3":
            return 2 + tiles  # the frame of a view, the whole image, and each tile
        return 1 + tiles if tiles else 0  # the whole image, and each tile

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """Special tokens of images in transformers' class: of a feature, of each learned vector, and one without use.

        Empty if the class inserts learned vectors as it does features.
        """
        if self.tiling != "idefics3":
            return ()
        edge = range(1, self.max_tiles + 1) if self.max_tiles > 1 else ()
        tiles = (f"<row_{row}_col_{column}>" for row in edge for column in edge)
        return ("<image>", "<fake_token_around_image>", "<global-img>", *tiles, "<end_of_utterance>")

    @property
    def grid_resolutions(self) -> list[list[int]]:
        """[height, width] of each sheet of tiles under the tiling `llava_next`, in pixels."""
        edges = [self.size * number for number in range(1, self.max_tiles + 1)]
        return [[height, width] for height in edges for width in edges]

    def check(self) -> None:
        """Raise ValueError if the class of transformers that the tiling is named after would cut images otherwise."""
        longest = self.max_tiles * self.size
        if self.tiling == "idefics3" and longest > _IDEFICS3_MAX_EDGE:
            raise ValueError(
                f"data.init_args.max_tiles: {self.max_tiles} tiles of {self.size} pixels are longer than the "
                f"{_IDEFICS3_MAX_EDGE} pixels of Idefics3; expected at most {_IDEFICS3_MAX_EDGE // self.size}"
            )


class FeatureOrder(NamedTuple):
    """Learned vectors and features in the order of the placeholders, for a tiling other than `tile_positions`."""

    # [F] int64: below ImageLayout.num_learned a learned vector, from there on feature n of view v, v * tokens + n
    indices: Tensor
    counts: Tensor  # [S] int64, number of indices of each sample


class Images(NamedTuple):
    """V views of the images of S samples, in the order of their placeholders. A sample may have no image."""

    pixels: Tensor  # [V, 3, size, size] uint8, RGB; V may be 0
    # [V] int64, position of each view: 0 for the whole image, 1 + row * max_tiles + column for a tile
    tile_positions: Tensor
    views: Tensor  # [S] int64, number of views of each sample
    order: FeatureOrder | None = None  # None: of each view its position, if images are tiled, and its features
