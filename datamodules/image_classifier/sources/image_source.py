"""Provides image sources: arrays in memory, or files that are decoded on demand."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.images.decoding import MAX_PIXELS, decode
from datamodules.images.image_file import read_image_file
from engine.data.worker_process import report_position
from engine.determinism.stateless_rng import hash_bits

_SPLIT = 0x5917  # a constant, so that splits do not depend on the seed


class ImageSource(Protocol):
    """N images of the same size."""

    labels: NDArray[np.int64]  # [N] class indices, -1 if unknown

    @property
    def identities(self) -> NDArray[np.int64]:
        """[N] identities of the images, from which `hold_out` computes hashes."""
        ...

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return images as [n, C, H, W]."""
        ...

    def name(self, row: int) -> str:
        """Return the name of an image for messages and predictions."""
        ...

    def subset(self, rows: NDArray[np.int64]) -> "ImageSource":
        """Return the source of some of the images, given their indices [n] in this source."""
        ...


class ImageSplits(NamedTuple):
    """Classes and images of a data set."""

    classes: list[str]  # class names by index
    train: ImageSource
    validation: ImageSource
    test: ImageSource


class ArrayImages(ImageSource):
    """Images in memory.

    Args:
        pixels: [N, C, H, W] uint8.
        labels: [N] int64.
        title: name of the data set; title and number are the name of an image.
        numbers: [N] indices in the whole data set, if this is a part of it.
    """

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        labels: NDArray[np.int64],
        title: str,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        self.pixels, self.labels, self.title = pixels, labels, title
        self.numbers = np.arange(len(labels)) if numbers is None else numbers

    @property
    @override
    def identities(self) -> NDArray[np.int64]:
        return np.arange(len(self.labels))  # the data set is fixed

    @override
    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self.pixels[rows]

    @override
    def name(self, row: int) -> str:
        return f"{self.title} {self.numbers[row]}"

    @override
    def subset(self, rows: NDArray[np.int64]) -> "ArrayImages":
        return ArrayImages(self.pixels[rows], self.labels[rows], self.title, self.numbers[rows])


class FileImages(ImageSource):
    """Image files, scaled and cropped to the same size.

    Args:
        files: N files, of any size and of the formats of `decoding.FORMATS`.
        labels: [N] int64.
        shape: C (1 for grayscale, 3 for color), H, W.
        folder: common folder; identities are hashes of the paths relative to it.
    """

    def __init__(
        self, files: Sequence[Path], labels: NDArray[np.int64], shape: tuple[int, int, int], folder: Path
    ) -> None:
        self.files, self.labels, self.shape, self.folder = files, labels, shape, folder

    @property
    @override
    def identities(self) -> NDArray[np.int64]:
        # Paths relative to the folder, so that a data set that was moved has the same splits.
        names = (file.relative_to(self.folder).as_posix().encode(errors="surrogateescape") for file in self.files)
        hashes = [int.from_bytes(blake2b(name, digest_size=8).digest(), "little", signed=True) for name in names]
        return np.array(hashes, np.int64)

    @override
    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.empty((len(rows), *self.shape), np.uint8)
        for index, row in enumerate(rows.tolist()):
            pixels[index] = self._decode(row)
        return pixels

    def _decode(self, row: int) -> NDArray[np.uint8]:
        report_position(row)
        path = self.files[row]
        return fitted_pixels(read_image_file(path, str(path)), str(path), self.shape)

    @override
    def name(self, row: int) -> str:
        return str(self.files[row])

    @override
    def subset(self, rows: NDArray[np.int64]) -> "FileImages":
        return FileImages([self.files[row] for row in rows], self.labels[rows], self.shape, self.folder)


def fitted_pixels(data: bytes, name: str, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Decode an image file, scaled and cropped to a shape.

    Args:
        data: content of a file in one of the formats of `decoding.FORMATS`.
        name: where it comes from, for errors.
        shape: C (1 for grayscale, 3 for color), H, W.

    Returns:
        [C, H, W]

    Raises:
        BadSampleError: the file cannot be decoded as an image.
    """
    from PIL import ImageOps
    from PIL.Image import Resampling

    channels, height, width = shape
    image = decode(data, name, MAX_PIXELS, needed=max(height, width))
    # Scaled to cover the shape, then cropped at the center, so that the aspect ratio is kept.
    image = ImageOps.fit(image, (width, height), Resampling.BICUBIC)
    pixels = np.asarray(image if channels == 3 else image.convert("L"))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def hold_out(source: ImageSource, share: float) -> tuple[ImageSource, ImageSource]:
    """Split a source: (the rest, a random fraction of it with at least one image), the same in every run.

    The split follows from hashes of the images' identities, so adding an image changes the side of at most one other.

    Raises:
        ValueError: there are fewer than two images.
    """
    number = len(source.labels)
    if number < 2:
        raise ValueError(f"found {number} training images to hold out from, expected at least two")
    order, num_held_out = np.argsort(hash_bits(_SPLIT, source.identities), kind="stable"), max(1, round(share * number))
    return source.subset(np.sort(order[num_held_out:])), source.subset(np.sort(order[:num_held_out]))


def digits(validation_share: float) -> ImageSplits:
    """Return the 1,797 scanned digits of scikit-learn, 8 x 8 in 17 gray levels; a fifth is the test set.

    Alpaydin and Kaynak, "Cascading Classifiers", Kybernetika 34(4), 1998: the test part of their "Optical Recognition
    of Handwritten Digits". Its 13 writers occur in all three splits.
    """
    from sklearn.datasets import load_digits

    scans = load_digits()
    # Gray levels from 0 to 16 become 0 to 255.
    pixels = (scans.images[:, None] * (255 / 16)).round().astype(np.uint8)
    training, test = hold_out(ArrayImages(pixels, scans.target.astype(np.int64), "digit"), 0.2)
    return ImageSplits([str(digit) for digit in range(10)], *hold_out(training, validation_share), test)
