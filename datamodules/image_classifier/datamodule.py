"""Images with one class each: scikit-learn's digits, CIFAR, or a folder of files."""

import logging
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from datamodules.image_classifier.augmentation import prepared
from datamodules.image_classifier.batch import Images
from datamodules.image_classifier.cifar import download_cifar, read_cifar
from datamodules.image_classifier.folder import read_folder, unlabelled
from datamodules.image_classifier.samples import ImageSamples, RawImages
from datamodules.image_classifier.sources import Splits, digits
from engine.datamodule import LockstepDataModule
from engine.exported import DataDescription

log = logging.getLogger("lockstep")

_CIFAR = (
    "its authors ask to cite Krizhevsky, 'Learning Multiple Layers of Features from Tiny Images', 2009, and state no "
    "licence; the images come from the web and have owners of their own."
)
_TERMS = {
    "digits": (
        "Optical Recognition of Handwritten Digits",
        "by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (doi 10.24432/C50P49), under CC BY 4.0; the "
        "copy is scikit-learn's.",
    ),
    "cifar10": ("CIFAR-10", _CIFAR),
    "cifar100": ("CIFAR-100", _CIFAR),
}
_OWN = "your own images: state here on what terms they may be used, and whether people can be seen in them."
_SHAPES = {"digits": (1, 8, 8), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}


class LabelledImages(LockstepDataModule):
    """Images of one size, each of one class.

    Args:
        dataset: `digits` (1,797 scans that scikit-learn brings along), `cifar10`, `cifar100` (`prepare` downloads them) or `folder` (root/train/CLASS/FILE, and val/ and test/ likewise).
        root: folder of the images; default for CIFAR: data/NAME.
        image_size: height and width, in pixels, that files of a `folder` are brought to.
        validation_share: share of the training images that is held out for validation, the same ones for every seed; of a `folder` also for test, each where it has no files of its own.
        crop_padding: training images are moved by up to so many pixels, each in each epoch anew.
        flip: mirror every second training image, each in each epoch anew.
        mixup: mix another image into each training image, by a share from Beta(mixup, mixup); 0 mixes nothing.
        predict_folder: folder whose images `predict` classifies; default: the test set.
        loading: see LockstepDataModule.
    """  # noqa: E501

    def __init__(
        self,
        dataset: Literal["digits", "cifar10", "cifar100", "folder"] = "digits",
        root: str | None = None,
        image_size: int = 64,
        validation_share: float = 0.1,
        crop_padding: int = 0,
        flip: bool = False,
        mixup: float = 0.0,
        predict_folder: str | None = None,
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        if dataset == "folder" and root is None:
            raise ValueError("data.init_args.root: null; give the folder with train/CLASS/FILE")
        if not 0 < validation_share < 1 or mixup < 0 or crop_padding < 0 or image_size < 1:
            raise ValueError(
                f"data.init_args: found validation_share {validation_share}, mixup {mixup}, crop_padding "
                f"{crop_padding}, image_size {image_size}; expected between 0 and 1, twice at least 0, and at least 1"
            )
        self.loads_at_once = dataset != "folder"
        self.dataset, self.root = dataset, Path(root or f"data/{dataset}")
        self.shape: tuple[int, int, int] = _SHAPES.get(dataset, (3, image_size, image_size))
        self.validation_share, self.predict_folder = validation_share, predict_folder
        self.crop_padding, self.flip, self.mixup = crop_padding, flip, mixup

    def prepare(self) -> None:
        if self.dataset.startswith("cifar"):
            download_cifar(self.dataset, self.root)
        self.setup("fit")

    @cached_property
    def splits(self) -> Splits:
        """Classes and images; read once."""
        if self.dataset == "digits":
            return digits(self.validation_share)
        if self.dataset == "folder":
            return read_folder(self.root, self.shape, self.validation_share)
        return read_cifar(self.dataset, self.root, self.validation_share)

    @cached_property
    def classes(self) -> list[str]:
        """Name of class k at k; to predict a folder, a module gives those of its checkpoint instead."""
        return self.splits.classes

    def setup(self, stage: str) -> None:
        if stage == "predict" and self.predict_folder is not None:  # the other images need not be there
            images = unlabelled(Path(self.predict_folder), self.shape)
            self.predict_set, self.name = ImageSamples(images), images.name
            log.info("%s: %d images to predict", self.predict_folder, len(images.labels))
            return
        splits = self.splits
        self.train_set = ImageSamples(splits.train, random=self.crop_padding > 0 or self.flip, mixup=self.mixup)
        self.validation_set, self.test_set = ImageSamples(splits.validation), ImageSamples(splits.test)
        self.predict_set, self.name = ImageSamples(splits.test), splits.test.name
        counts = (len(part.labels) for part in (splits.train, splits.validation, splits.test))
        log.info("%s: %d classes; %d images to train, %d to validate, %d to test",
                 self.dataset, len(splits.classes), *counts)  # fmt: skip

    def describe(self, row: int) -> dict[str, str]:
        """What names an image of `predict_set` in a line of predictions, whether there is an answer or not."""
        return {"image": self.name(row)}

    def description(self) -> DataDescription:
        splits, (channels, height, width) = self.splits, self.shape
        train, held, test = (len(part.labels) for part in (splits.train, splits.validation, splits.test))
        content = (
            f"{train:,} images to train, {held:,} to validate, {test:,} to test, of {len(splits.classes)} classes; "
            f"{height} x {width} pixels, {channels} channel(s)."
        )
        name, terms = _TERMS.get(self.dataset, (self.root.name, _OWN))
        return DataDescription(name, content, terms)

    def validation_image(self, sample: int) -> tuple[str, NDArray[np.uint8]]:
        """Name and [C, H, W] pixels of an image of `validation_set`."""
        source = self.splits.validation
        return source.name(sample), source.read(np.array([sample]))[0]

    def on_after_batch_transfer(self, batch: RawImages, dataloader_idx: int) -> Images:
        return prepared(batch, len(self.classes), self.crop_padding, self.flip)
