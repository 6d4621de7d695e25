"""Merges features into token embeddings, in place of placeholder tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.multimodal.batch import Prompts, TokenRows


class Features(NamedTuple):
    """Features that replace the placeholders."""

    vectors: Tensor  # [F, C]
    counts: Tensor  # [S] int64, number of features of each sample


def merge_features_into_embeddings(
    embeddings: Tensor, chats: TokenRows | Prompts, features: Tensor, counts: Tensor, placeholder: int
) -> Tensor:
    """Return the embeddings [R, L, C] with the features in place of the placeholders, in order.

    Gradients reach the features. The check synchronizes with the device once, whatever the number of chats.

    Args:
        embeddings: [R, L, C] of `chats.tokens`.
        chats: tokens, and the number of placeholders of each chat.
        features: [F, C], chat by chat; cast to the dtype of the embeddings.
        counts: [S] number of features of each chat.
        placeholder: token that features replace.

    Raises:
        ValueError: a chat has more or fewer features than placeholders; the message names its sample.
    """
    is_placeholder = (chats.tokens == placeholder).flatten()
    # One tensor, so that the truth value is read from the device once.
    placeholders = is_placeholder.sum()
    # Checked in every batch: with one feature too few, all later features would land in wrong places without an error.
    agree = (chats.placeholders == counts).all() & (placeholders == len(features)) & (counts.sum() == len(features))
    if not agree:
        raise ValueError(_disagreement(chats, int(placeholders), len(features), counts))
    # Unlike masked_scatter, this does not synchronize again in the backward pass.
    indices = torch.nonzero_static(is_placeholder, size=len(features)).squeeze(1)
    flat = embeddings.flatten(0, 1).index_copy(0, indices, features.to(embeddings.dtype))
    return flat.view_as(embeddings)


def _disagreement(chats: TokenRows | Prompts, placeholders: int, features: int, counts: Tensor) -> str:
    counts_by_sample = zip(chats.samples.tolist(), chats.placeholders.tolist(), counts.tolist(), strict=True)
    for sample, expected, count in counts_by_sample:
        if expected != count:
            return f"sample {sample}: its chat has {expected} placeholders, but the encoder returned {count} features"
    return (
        f"{placeholders} placeholders among the tokens, {int(counts.sum())} expected, and {features} features, in the "
        f"batch of samples {chats.samples.tolist()[:8]}...: is a chat truncated, or the placeholder in a text?"
    )
