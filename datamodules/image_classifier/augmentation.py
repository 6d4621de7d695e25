"""From what the loader brings to what a network sees, for a whole batch at once, on the device."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from datamodules.image_classifier.batch import Images
from datamodules.image_classifier.samples import RANDOM_BITS, RawImages


def prepared(raw: RawImages, classes: int, crop_padding: int, flip: bool) -> Images:
    """Crops and flips each image (where the batch brings random numbers), mixes them, scales pixels to [-1, 1].

    Mixup is that of Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018: one share for a batch.
    """
    pixels, labels = raw.pixels.flatten(0, 1), raw.labels
    if raw.random is not None:
        uniform = raw.random.flatten(0, 1).float() / 2**RANDOM_BITS
        pixels = cropped(pixels, uniform, crop_padding, flip)
    pixels = pixels.unflatten(0, labels.shape).float() / 127.5 - 1
    targets = one_hot(labels.clamp(min=0), classes) * (labels >= 0)[..., None]
    shares = raw.shares.float() / raw.shares.float().sum()  # Lightning may have rounded them to bfloat16
    return Images(
        torch.einsum("bvchw,v->bchw", pixels, shares),
        torch.einsum("bvk,v->bk", targets.float(), shares),
        labels[:, 0],
        raw.samples,
    )


def cropped(pixels: Tensor, uniform: Tensor, padding: int, flip: bool) -> Tensor:
    """Each image from another place of itself with a black frame, every second one mirrored.

    As in He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

    Args:
        pixels: [B, C, H, W].
        uniform: [B, 3] in [0, 1): from them follow the place down, the place across, and whether it is mirrored.
        padding: width of the frame.
        flip: whether images are mirrored at all.
    """
    (_, _, height, width), device = pixels.shape, pixels.device
    down, across = (uniform[:, :2] * (2 * padding + 1)).long().unbind(1)
    columns = torch.arange(width, device=device).expand(len(pixels), -1)
    if flip:
        columns = torch.where(uniform[:, 2:] < 0.5, columns.flip(1), columns)
    rows = torch.arange(height, device=device) + down[:, None]
    images = torch.arange(len(pixels), device=device)[:, None, None]
    # Indices on both sides of a slice: their dimensions come first, [B, H, W, C].
    framed = pad(pixels, [padding] * 4)
    return framed[images, :, rows[:, :, None], (columns + across[:, None])[:, None]].permute(0, 3, 1, 2)
