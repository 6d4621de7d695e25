"""Splits prompts and rows into buckets of similar length, so that little padding is computed."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.multimodal.batch import Images, Prompts, TokenRows

_MAX_POSITIONS = 16384
"""Largest number of positions in a bucket of prompts, padding included."""


class PromptBucket(NamedTuple):
    """Some of the prompts, as wide as the longest of them."""

    indices: Tensor  # [p] int64, indices among all prompts; [0] of a dummy
    prompts: Prompts
    images: Images


class RowBucket(NamedTuple):
    """Some of the rows, as wide as the longest of them."""

    indices: Tensor  # [R] int64, indices among all rows
    rows: TokenRows
    images: Images | None


def bucket_prompts(prompts: Prompts, images: Images, indices: list[int]) -> list[PromptBucket]:
    """Return these prompts, from the shortest to the longest, in buckets of a bounded number of positions.

    Args:
        prompts: P prompts, padded on the left.
        images: images of the P prompts.
        indices: which of the prompts to return.
    """
    lengths = prompts.mask.sum(dim=1).tolist()
    ordered = sorted(indices, key=lambda index: lengths[index])
    return [_bucket(prompts, images, bucket, lengths[bucket[-1]]) for bucket in _split(ordered, lengths)]


def dummy_bucket(prompts: Prompts, images: Images) -> PromptBucket:
    """Return one prompt of one token without images, for a rank that must run a forward pass with no prompt left."""
    device = prompts.mask.device
    zero, mask = torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, 1, dtype=torch.bool, device=device)
    # Sample -1 marks padding; without images, and with no placeholder, the encoder still runs (see ImageFeatures).
    prompt = Prompts(prompts.tokens[:1, -1:], mask, zero - 1, zero)
    return PromptBucket(zero[:0], prompt, Images(images.pixels[:0], images.tile_positions[:0], zero))


def bucket_rows(rows: TokenRows, images: Images | None, size: int | None) -> Iterator[RowBucket]:
    """Yield the rows in buckets of at most `size` rows of similar length.

    Args:
        rows: R rows with one chat each.
        images: images of the chats, or None if there are none.
        size: None: all rows in one bucket, in their order.
    """
    if size is None or len(rows.samples) <= size:
        yield RowBucket(torch.arange(len(rows.samples), device=rows.tokens.device), rows, images)
        return
    lengths = rows.lengths
    # A stable sort, so that every device splits rows of equal length alike.
    for indices in lengths.argsort(stable=True).split(size):
        width = int(lengths[indices].max())
        cut = TokenRows(
            rows.tokens[indices, :width],
            rows.labels[indices, :width],
            rows.positions[indices, :width],
            rows.samples[indices],
            rows.placeholders[indices],
        )
        yield RowBucket(indices, cut, None if images is None else _select_images(images, indices))


def _split(indices: list[int], lengths: list[int]) -> Iterator[list[int]]:
    bucket: list[int] = []
    for index in indices:
        # In ascending order, so the next prompt is the widest and sets the width of the bucket.
        if bucket and (len(bucket) + 1) * lengths[index] > _MAX_POSITIONS:
            yield bucket
            bucket = []
        bucket.append(index)
    if bucket:
        yield bucket


def _bucket(prompts: Prompts, images: Images, prompt_indices: list[int], width: int) -> PromptBucket:
    indices = torch.tensor(prompt_indices, device=prompts.mask.device)
    # The last `width` columns, because prompts are padded on the left.
    tokens, mask = (matrix[indices][:, -width:] for matrix in (prompts.tokens, prompts.mask))
    selected = Prompts(tokens, mask, prompts.samples[indices], prompts.placeholders[indices])
    return PromptBucket(indices, selected, _select_images(images, indices))


def _select_images(images: Images, samples: Tensor) -> Images:
    """Return the views of some of the samples, in the order of `samples`."""
    first, counts = images.views.cumsum(0) - images.views, images.views[samples]
    # The views of a sample are consecutive: the index of its first view, plus 0, 1, ...
    offsets = torch.arange(int(counts.sum()), device=counts.device) - (counts.cumsum(0) - counts).repeat_interleave(
        counts
    )
    views = first[samples].repeat_interleave(counts) + offsets
    return Images(images.pixels[views], images.tile_positions[views], counts)
