"""Prompts a few at a time, those of similar length together: they are of all lengths, and many to a question."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.multimodal.batch import Images, Prompts

_READ_AT_ONCE = 16384
"""Positions of prompts that are read at once, padding among them."""


class Part(NamedTuple):
    """Some of the prompts, as wide as the longest of them."""

    places: Tensor  # [p] int64, where they are among all prompts; of a blank one [0]
    prompts: Prompts
    images: Images


def parts(prompts: Prompts, images: Images, places: list[int]) -> list[Part]:
    """These prompts, from the shortest to the longest, in parts of a bounded number of positions.

    Args:
        prompts: P of them, padded on the left.
        images: of the P prompts.
        places: which of them.
    """
    lengths = prompts.mask.sum(dim=1).tolist()
    in_order = sorted(places, key=lambda place: lengths[place])
    return [_part(prompts, images, some, lengths[some[-1]]) for some in _shared_out(in_order, lengths)]


def blank(prompts: Prompts, images: Images) -> Part:
    """One prompt of one token and no image, that nobody asked for."""
    device = prompts.mask.device
    nothing, one = torch.zeros(1, dtype=torch.int64, device=device), torch.ones(1, 1, dtype=torch.bool, device=device)
    prompt = Prompts(prompts.tokens[:1, -1:], one, nothing - 1, nothing)
    return Part(nothing[:0], prompt, Images(images.pixels[:0], images.places[:0], nothing))


def _shared_out(places: list[int], lengths: list[int]) -> Iterator[list[int]]:
    some: list[int] = []
    for place in places:
        if some and (len(some) + 1) * lengths[place] > _READ_AT_ONCE:
            yield some
            some = []
        some.append(place)
    if some:
        yield some


def _part(prompts: Prompts, images: Images, some: list[int], width: int) -> Part:
    places = torch.tensor(some, device=prompts.mask.device)
    tokens, mask = (matrix[places][:, -width:] for matrix in (prompts.tokens, prompts.mask))
    chosen = Prompts(tokens, mask, prompts.samples[places], prompts.placeholders[places])
    starts, views = images.views.cumsum(0) - images.views, images.views[places]
    # Where the views of each chosen prompt are: its first one, and as many after it.
    offsets = torch.arange(int(views.sum()), device=views.device) - (views.cumsum(0) - views).repeat_interleave(views)
    seen = starts[places].repeat_interleave(views) + offsets
    return Part(places, chosen, Images(images.pixels[seen], images.places[seen], views))
