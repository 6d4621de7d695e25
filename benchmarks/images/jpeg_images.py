"""Generates pictures with the statistics of photos, as JPEG."""

import io

import numpy as np

SIZES = {"224 x 224": (224, 224), "640 x 480": (640, 480), "4000 x 3000": (4000, 3000)}
"""{name: width and height}"""

_QUALITY = 90


def jpeg(width: int, height: int, seed: int = 0) -> bytes:
    """Return a JPEG with coarse shapes and fine noise: about two bits for each pixel, as of a photo."""
    from PIL import Image
    from PIL.Image import Resampling

    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (width, height), Resampling.BICUBIC
    )
    # JPEG decodes smooth images fast; noise gives as many coefficients as a photo has.
    noise = draws.normal(0, 6, (height, width, 1))
    pixels = np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
