"""Where images come from: arrays in memory, or files that are decoded when they are needed."""

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.image_decoding import MAX_PIXELS, decode
from engine.randomness import hash_bits
from engine.workers import at

_SPLIT = 0x5917  # the split is the same for every seed: it belongs to the data


class ImageSource(Protocol):
    """N images of one size."""

    labels: NDArray[np.int64]  # [N], -1 where the class is not known

    @property
    def identities(self) -> NDArray[np.int64]:
        """[N] what tells an image from others when a part of them is held out."""

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """[n, C, H, W]"""

    def name(self, row: int) -> str: ...

    def part(self, rows: NDArray[np.int64]) -> "ImageSource": ...


class Splits(NamedTuple):
    """What a data set consists of."""

    classes: list[str]  # name of class k at k
    train: ImageSource
    validation: ImageSource
    test: ImageSource


class ArrayImages:
    """Images in memory.

    Args:
        pixels: [N, C, H, W] uint8.
        labels: [N] int64.
        title: of the data set; with its number it names an image.
        numbers: [N] places in the data set, where these are a part of it.
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
    def identities(self) -> NDArray[np.int64]:
        return np.arange(len(self.labels))  # nobody adds an image to these

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        return self.pixels[rows]

    def name(self, row: int) -> str:
        return f"{self.title} {self.numbers[row]}"

    def part(self, rows: NDArray[np.int64]) -> "ArrayImages":
        return ArrayImages(self.pixels[rows], self.labels[rows], self.title, self.numbers[rows])


class FileImages:
    """Image files, brought to one size: scaled until they fill it, and cropped at their middle.

    Args:
        files: N of them, of any size and of the formats of `image_decoding`.
        labels: [N] int64.
        shape: C (1 for grey, 3 for colour), H, W.
        folder: in which they lie; their paths in it tell them apart, wherever it is.
    """

    def __init__(
        self, files: Sequence[Path], labels: NDArray[np.int64], shape: tuple[int, int, int], folder: Path
    ) -> None:
        self.files, self.labels, self.shape, self.folder = files, labels, shape, folder

    @property
    def identities(self) -> NDArray[np.int64]:
        names = (file.relative_to(self.folder).as_posix().encode(errors="surrogateescape") for file in self.files)
        hashes = [int.from_bytes(blake2b(name, digest_size=8).digest(), "little", signed=True) for name in names]
        return np.array(hashes, np.int64)

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        pixels = np.empty((len(rows), *self.shape), np.uint8)
        for place, row in enumerate(rows.tolist()):
            pixels[place] = self._decoded(row)
        return pixels

    def _decoded(self, row: int) -> NDArray[np.uint8]:
        from PIL import ImageOps
        from PIL.Image import Resampling

        at(row)
        (channels, height, width), path = self.shape, self.files[row]
        image = decode(path.read_bytes(), str(path), MAX_PIXELS, needed=max(height, width))
        image = ImageOps.fit(image, (width, height), Resampling.BICUBIC)
        pixels = np.asarray(image if channels == 3 else image.convert("L"))
        return pixels.reshape(height, width, channels).transpose(2, 0, 1)

    def name(self, row: int) -> str:
        return str(self.files[row])

    def part(self, rows: NDArray[np.int64]) -> "FileImages":
        return FileImages([self.files[row] for row in rows], self.labels[rows], self.shape, self.folder)


def hold_out(source: ImageSource, share: float) -> tuple[ImageSource, ImageSource]:
    """(what is left, a random `share` of it, one image at least), the same ones in every run.

    Who is held out follows from a hash of each image's identity, so for an image that is added one other, at most,
    changes sides.

    Raises:
        ValueError: there are not two images.
    """
    number = len(source.labels)
    if number < 2:
        raise ValueError(f"found {number} training images to hold some of out, expected two at least")
    order, held = np.argsort(hash_bits(_SPLIT, source.identities), kind="stable"), max(1, round(share * number))
    return source.part(np.sort(order[held:])), source.part(np.sort(order[:held]))


def digits(validation_share: float) -> Splits:
    """The 1,797 scanned digits that scikit-learn brings along, 8 x 8 in 17 greys; a fifth of them is the test set.

    Alpaydin and Kaynak, "Cascading Classifiers", Kybernetika 34(4), 1998: the test part of their "Optical Recognition
    of Handwritten Digits", whose 13 writers are spread over all three sets here.

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise ValueError("data.init_args.dataset digits: scikit-learn has them; pip install -e '.[images]'") from error
    scans = load_digits()
    pixels = (scans.images[:, None] * (255 / 16)).round().astype(np.uint8)
    rest, test = hold_out(ArrayImages(pixels, scans.target.astype(np.int64), "digit"), 0.2)
    return Splits([str(digit) for digit in range(10)], *hold_out(rest, validation_share), test)
