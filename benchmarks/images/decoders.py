"""Measures images per second of a core, by decoder."""

import importlib
import io
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks.images.jpeg_images import SIZES, jpeg
from benchmarks.turn_order import turn_order
from datamodules.image_classifier.sources.image_source import fitted_pixels

_EDGE = 224
_SECONDS = 0.5
"""CPU seconds of a turn of a variant."""

Decoder = Callable[[bytes], NDArray[np.uint8]]


def measure(repeats: int, seconds: float = _SECONDS) -> dict[str, Any]:
    """Return {size: {decoder: images per second of a core, for each turn}}."""
    variants = decoders()
    found: dict[str, Any] = {}
    for name, (width, height) in SIZES.items():
        data = jpeg(width, height)
        found[name] = {variant: [] for variant in variants}
        for turn in range(repeats):
            for variant in turn_order(variants, turn):
                found[name][variant].append(_rate(variants[variant], data, seconds))
    return found


def table(found: dict[str, Any]) -> Table:
    """Return a table of the medians with their ranges."""
    table = Table(title=f"images per second of a core, JPEG to {_EDGE} x {_EDGE}", title_justify="left")
    table.add_column("decoder")
    for size in found:
        table.add_column(size, justify="right")
    for variant in next(iter(found.values())):
        turns = [found[size][variant] for size in found]
        table.add_row(variant, *(f"{median(t):,.0f} ({min(t):,.0f} - {max(t):,.0f})" for t in turns))
    return table


def decoders() -> dict[str, Decoder]:
    """Return the decoders that are installed, by name."""
    found: dict[str, Decoder] = {"Pillow, reduced (Lockstep)": _ours, "Pillow, full size": _whole}
    for module, name, make in (("cv2", "OpenCV, reduced", _opencv), ("simplejpeg", "simplejpeg, reduced", _simplejpeg)):
        try:
            found[name] = make(importlib.import_module(module))
        # The table has the decoders of this machine; none but Pillow is required.
        except ImportError:
            continue
    return found


def _rate(decoder: Decoder, data: bytes, seconds: float) -> float:
    decoder(data)
    began, images = time.process_time(), 0
    # At least three images: one of 4000 x 3000 may take longer than the turn.
    while (used := time.process_time() - began) < seconds or images < 3:
        decoder(data)
        images += 1
    return images / used


def _ours(data: bytes) -> NDArray[np.uint8]:
    return fitted_pixels(data, "benchmark", (3, _EDGE, _EDGE))


def _whole(data: bytes) -> NDArray[np.uint8]:
    from PIL import Image

    return _fitted(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def _opencv(cv2: Any) -> Decoder:
    cv2.setNumThreads(1)
    reduced = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}

    def decode(data: bytes) -> NDArray[np.uint8]:
        # OpenCV returns BGR; the slice below reverses the channels, and Pillow needs contiguous memory.
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), reduced.get(_scale(data), cv2.IMREAD_COLOR))
        return _fitted(np.ascontiguousarray(pixels[..., ::-1]))

    return decode


def _simplejpeg(simplejpeg: Any) -> Decoder:
    def decode(data: bytes) -> NDArray[np.uint8]:
        return _fitted(simplejpeg.decode_jpeg(data, min_height=2 * _EDGE, min_width=2 * _EDGE, min_factor=1))

    return decode


def _scale(data: bytes) -> int:
    """Return the factor at which both edges stay at least twice the target, as Pillow's draft mode chooses it."""
    from PIL import Image

    shorter = min(Image.open(io.BytesIO(data)).size)
    return next((factor for factor in (8, 4, 2) if shorter >= 2 * _EDGE * factor), 1)


def _fitted(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize and crop as `fitted_pixels` does."""
    from PIL import Image, ImageOps
    from PIL.Image import Resampling

    image = ImageOps.fit(Image.fromarray(pixels), (_EDGE, _EDGE), Resampling.BICUBIC)
    return np.asarray(image).transpose(2, 0, 1)
