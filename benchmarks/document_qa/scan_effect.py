"""Makes an image of a page look like a scan."""

from PIL import Image, ImageFilter

from engine.determinism.stateless_rng import hash_uniform

DPI = 144
"""Resolution of rendered pages in pixels per inch, as in the ingestion's defaults."""

_BLUR = 0.8  # standard deviation in pixels


def scan(page: Image.Image, number: int) -> Image.Image:
    """Return a page as a scanner returns it: turned by 1 to 2 degrees in either direction, and blurred.

    Args:
        page: image of the page, in RGB.
        number: seed of the angle.
    """
    draw = float(hash_uniform(0x5CA4, number))
    # One draw gives sign and size: below 0.5 to the left, and the farther from 0.5 the more.
    degrees = (1 + abs(2 * draw - 1)) * (1 if draw < 0.5 else -1)
    turned = page.rotate(degrees, fillcolor="white", resample=Image.Resampling.BICUBIC)
    return turned.filter(ImageFilter.GaussianBlur(_BLUR))
