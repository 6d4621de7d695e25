"""Defines a chat as a processor encodes it, and batches its images."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.multimodal.batch import Chat


class EncodedChat(NamedTuple):
    """Tokens of a chat and the model's inputs for its images."""

    chat: Chat
    images: dict[str, Tensor]  # by the names of the model's arguments; empty without an image


def collate_images(chats: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the images of several chats as one batch: concatenated, and padded with zeros to equal shapes.

    Args:
        chats: the images of each chat, in the order of their tokens. Arrays of a name have the same number of
            dimensions. The first counts images, patches or chats; the others differ in their size only where the model
            knows how much of each is real (`image_sizes`, `pixel_attention_mask`).
    """
    names = dict.fromkeys(name for images in chats for name in images)
    return {name: _pad_and_concatenate([images[name] for images in chats if name in images]) for name in names}


def _pad_and_concatenate(arrays: list[Tensor]) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
    return torch.cat([_pad_to(array, shape) for array in arrays])


def _pad_to(array: Tensor, shape: Sequence[int]) -> Tensor:
    lacking = [target - length for target, length in zip(shape, array.shape[1:], strict=True)]
    if not any(lacking):
        return array
    # F.pad counts dimensions from the last, with two sides each; only the end is padded.
    return F.pad(array, [side for size in reversed(lacking) for side in (0, size)])
