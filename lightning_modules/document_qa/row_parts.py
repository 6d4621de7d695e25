"""Rows with one chat each: where their chats end, and a few of them at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.multimodal.batch import Images, Rows


class Part(NamedTuple):
    """Some of the rows, as wide as the longest of them."""

    places: Tensor  # [R] int64, where they are among all rows
    rows: Rows
    images: Images | None


def lengths(rows: Rows) -> Tensor:
    """[R] int64: tokens of each row's chat; padding counts its positions from 0 again, as another chat would."""
    begins = rows.positions[:, 1:] == 0
    return torch.where(begins.any(dim=1), begins.int().argmax(dim=1) + 1, rows.positions.shape[1])


def row_parts(rows: Rows, images: Images | None, at_once: int | None) -> Iterator[Part]:
    """The rows, at most so many at once, those of similar length together so that little is padding.

    Args:
        rows: one chat each.
        images: of the chats, or None where there are none at all.
        at_once: None for all, as they are.
    """
    if at_once is None or len(rows.samples) <= at_once:
        yield Part(torch.arange(len(rows.samples), device=rows.tokens.device), rows, images)
        return
    tokens = lengths(rows)
    for places in tokens.argsort(stable=True).split(at_once):
        width = int(tokens[places].max())
        cut = [matrix[places, :width] for matrix in (rows.tokens, rows.labels, rows.positions)]
        yield Part(
            places,
            Rows(*cut, rows.samples[places], rows.placeholders[places]),
            None if images is None else _of(images, places),
        )


def _of(images: Images, samples: Tensor) -> Images:
    """The views of some of the samples, in their order."""
    owners = torch.arange(len(images.views), device=images.views.device).repeat_interleave(images.views)
    chosen = torch.cat([(owners == sample).nonzero().squeeze(1) for sample in samples])
    return Images(images.pixels[chosen], images.places[chosen], images.views[samples])
