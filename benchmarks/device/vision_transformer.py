"""Measures training steps of a Vision Transformer of the size of ViT-B/16: images per second, MFU by format."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.device.measures.reference import Format, Outcome, Variant, compared, formats, gradients_of
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Setting
from benchmarks.device.rates import HEADINGS, rate_rows
from benchmarks.device.training_step import TrainingStep
from lightning_modules.image_classifier.networks.vit import VisionTransformer
from lightning_modules.multimodal.flops import attention_flops, product_flops

_REALISTIC = {"size": 224, "classes": 1000, "patch": 16, "width": 768, "depth": 12, "heads": 12}
_TINY = {"size": 16, "classes": 10, "patch": 4, "width": 32, "depth": 2, "heads": 2}
_BATCH, _TINY_BATCH = 64, 4
_AT_ONCE = 8
"""Number of images of the reference; float64 states and scores of all images would not fit the memory."""


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure the table."""
    torch.manual_seed(1)
    sizes, batch = (_TINY, _TINY_BATCH) if setting.tiny else (_REALISTIC, _BATCH)
    network = VisionTransformer(3, **sizes).to(setting.device)
    images = torch.rand((batch, 3, sizes["size"], sizes["size"]), device=setting.device) * 2 - 1
    targets = torch.randint(0, sizes["classes"], (batch,), device=setting.device)

    def variant(name: str, format: Format, compiled: bool = False) -> Variant:
        # A copy: compiling changes the network, and steps change weights.
        own = deepcopy(network).train()
        if compiled:
            own.compile()
        step = TrainingStep(own, lambda: F.cross_entropy(own(images).float(), targets), format, setting.device)
        return step.variant(name)

    variants = [variant(format, format) for format in formats(setting.device)]
    if setting.compiled:
        variants.append(variant("bf16 compiled", "bf16", compiled=True))
    reference = _reference(network, images, targets)
    checks, failures = compared(variants, reference)
    del reference
    yield checks
    absent = {} if setting.cuda else {"tf32": NEEDS_CUDA, "fp16": NEEDS_CUDA}
    variants = [variant for variant in variants if variant.name not in failures]
    rows = rate_rows(variants, batch, batch * flops_of_an_image(network, sizes), setting, absent)
    yield ResultTable(
        f"training step of a Vision Transformer, width {sizes['width']}, depth {sizes['depth']}, patches of "
        f"{sizes['patch']} x {sizes['patch']}, {batch} images of {sizes['size']} x {sizes['size']}",
        ("ms per step", "images/s", *HEADINGS),
        rows,
        failures,
    )


def flops_of_an_image(network: VisionTransformer, sizes: dict[str, int]) -> int:
    """Return the FLOPs of forward and backward, as in lightning_modules/multimodal/flops.py; all weights train."""
    tokens = (sizes["size"] // sizes["patch"]) ** 2
    layers = tokens * product_flops(network.blocks, back=True)
    pairs = tokens**2 * sizes["depth"] * attention_flops(sizes["width"], back=True)
    return tokens * product_flops(network.patches, back=False) + layers + pairs + product_flops(network.head, back=True)


def _reference(network: VisionTransformer, images: Tensor, targets: Tensor) -> Outcome:
    exact = deepcopy(network).double()
    total = torch.zeros((), dtype=torch.float64, device=images.device)
    for some, right in zip(images.double().split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
        # A part's share of the mean over all images; gradients of the parts add up.
        loss = F.cross_entropy(exact(some), right, reduction="sum") / len(images)
        loss.backward()
        total += loss.detach()
    return Outcome(total, gradients_of(exact.parameters()))
