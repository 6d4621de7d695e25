"""Puts another modality's features where their placeholders stand among the tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.multimodal.batch import Prompts, Rows


class Features(NamedTuple):
    """What stands in the placeholders."""

    vectors: Tensor  # [F, C]
    counts: Tensor  # [S] int64, how many of them each sample has


def splice(embeddings: Tensor, chats: Rows | Prompts, features: Tensor, counts: Tensor, placeholder: int) -> Tensor:
    """The embeddings with the features in the placeholders' places, in order; gradients reach the features.

    The check waits for the device once, whatever the number of chats; so has the encoder, to find out F.

    Args:
        embeddings: [R, L, C] of `chats.tokens`.
        features: [F, C] of all chats, one chat after the other; cast to the embeddings' dtype.
        counts: [S], how many of the features belong to each chat.
        placeholder: the token that features take the place of.

    Raises:
        ValueError: a chat has more or fewer features than placeholders; names its sample.
    """
    places = (chats.tokens == placeholder).flatten()
    agree = (chats.placeholders == counts).all() & (places.sum() == len(features)) & (counts.sum() == len(features))
    if not agree:
        raise ValueError(_disagreement(chats, int(places.sum()), len(features), counts))
    # Unlike masked_scatter this does not wait for the device again to find out, in the backward pass, how many.
    indices = torch.nonzero_static(places, size=len(features)).squeeze(1)
    flat = embeddings.flatten(0, 1).index_copy(0, indices, features.to(embeddings.dtype))
    return flat.view_as(embeddings)


def _disagreement(chats: Rows | Prompts, places: int, features: int, counts: Tensor) -> str:
    found = zip(chats.samples.tolist(), chats.placeholders.tolist(), counts.tolist(), strict=True)
    for sample, expected, count in found:
        if expected != count:
            return f"sample {sample}: its chat has {expected} placeholders, but the encoder made {count} features of it"
    return (
        f"{places} placeholders among the tokens, {int(counts.sum())} announced, and {features} features, in the batch "
        f"of samples {chats.samples.tolist()[:8]}...: was a chat cut, or is the placeholder a token of a text?"
    )
