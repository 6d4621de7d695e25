"""What the multimodal families' batches have in common: chats as rows of tokens.

A chat holds *placeholders*: tokens that stand where the features of another modality (a series, a picture) belong, one
for each feature vector. The data side knows how many there are, the model side puts the features in their place. All
arrays of features follow the order in which the placeholders appear, row by row from the left.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.bad_samples import LeftOut

IGNORE = -100
"""The label of a token that is not supervised."""


class Chat(NamedTuple):
    """A chat of n tokens, as a language model reads it."""

    tokens: NDArray[np.int64]  # [n]
    supervised: NDArray[np.bool_]  # [n] what the assistant says, with the end of its turn
    placeholders: int  # how many of the tokens stand for another modality's features


class Counts(NamedTuple):
    """Of tokens, as numbers: nobody has to wait for the device to know them."""

    real: int = 0  # not padding
    supervised: int = 0
    features: int = 0  # placeholders
    pairs: int = 0  # of two tokens of the same chat, in either order


class Rows(NamedTuple):
    """S chats in R rows of L tokens; a row holds one chat or several, one after the other, padded on the right."""

    tokens: Tensor  # [R, L] int64; the padding token where there is nothing
    labels: Tensor  # [R, L] int64, the token itself where it is supervised, else IGNORE; not shifted
    positions: Tensor  # [R, L] int64, from 0 in every chat; padding goes on counting from 0 as a chat of its own
    samples: Tensor  # [S] int64, the sample of each chat, in the order of the rows; FILLER chats have none
    placeholders: Tensor  # [S] int64, placeholders of each chat
    counts: Counts = Counts()  # of all rows together


class Prompts(NamedTuple):
    """B chats up to where the assistant is to speak, padded on the left."""

    tokens: Tensor  # [B, L] int64
    mask: Tensor  # [B, L] bool, true where there is a token
    samples: Tensor  # [B] int64
    placeholders: Tensor  # [B] int64


class Examples(NamedTuple):
    """Chats to train on."""

    rows: Rows
    modality: Any  # what the family's encoder reads, in the order of `rows.samples`
    left_out: tuple[LeftOut, ...] = ()


class Questions(NamedTuple):
    """The same chats twice: whole, to be scored, and up to the answer, to be answered. One order throughout."""

    rows: Rows  # one chat a row; nothing is supervised where no answer is known
    prompts: Prompts
    modality: Any  # what the family's encoder reads
    left_out: tuple[LeftOut, ...] = ()


class ImageLayout(NamedTuple):
    """What vision tower, projector and data agree on. An image is one *view*, or a view of the whole and its tiles."""

    size: int  # pixels of a view's edges; views are square
    tokens: int  # embeddings that tower and projector make of a view
    max_tiles: int = 1  # the most tiles along each edge of an image; 1: it is never split
    background: tuple[int, int, int] = (128, 128, 128)  # RGB around an image: about the mean that the tower takes off

    @property
    def view_tokens(self) -> int:
        """Embeddings of a view: where images are split, one more that says where the view lies."""
        return self.tokens + (self.max_tiles > 1)


class Images(NamedTuple):
    """V views of the images of S samples, in the order of their placeholders; a sample may have none."""

    pixels: Tensor  # [V, 3, size, size] uint8, RGB; V may be 0
    places: Tensor  # [V] int64, 0: the whole image; 1 + row * max_tiles + column: a tile
    views: Tensor  # [S] int64, views of each sample
