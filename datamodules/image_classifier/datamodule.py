"""Provides labeled images: the DataModule of scikit-learn's digits, CIFAR, or a folder of files."""

import logging
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.image_classifier.augmentation import Augmentation, prepare_batch
from datamodules.image_classifier.batch import ClassifierImages
from datamodules.image_classifier.dataset import ImageDataset, RawImages
from datamodules.image_classifier.sources.cifar import download_cifar, read_cifar
from datamodules.image_classifier.sources.image_folder import read_folder, read_unlabeled
from datamodules.image_classifier.sources.image_source import ImageSplits, digits
from engine.base_options import LoadingOptions, Unpack
from engine.datamodule import LockstepDataModule
from engine.export.artifacts import DatasetCard
from engine.number_check import check_number, check_numbers

log = logging.getLogger("lockstep")

_CIFAR = (
    "the authors request a citation of Krizhevsky, 'Learning Multiple Layers of Features from Tiny Images', 2009, and "
    "state no license; the images were collected from the web and have different owners."
)
_TERMS = {
    "digits": (
        "Optical Recognition of Handwritten Digits",
        "by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (doi 10.24432/C50P49), under CC BY 4.0; as "
        "distributed with scikit-learn.",
    ),
    "cifar10": ("CIFAR-10", _CIFAR),
    "cifar100": ("CIFAR-100", _CIFAR),
}
_OWN = "your own images: state here under which terms they may be used, and whether people are recognizable."
_SHAPES = {"digits": (1, 8, 8), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}


class LabelledImages(LockstepDataModule):
    """Images of the same size with one class each.

    Args:
        dataset: `digits` (1,797 scans, part of scikit-learn), `cifar10`, `cifar100` (downloaded by `prepare`) or
            `folder` (root/train/CLASS/FILE, and likewise val/ and test/).
        root: folder of the images; default for CIFAR: data/NAME.
        image_size: height and width, in pixels, that files of a `folder` are resized to.
        validation_share: fraction of the training images that is held out for validation, independent of the seed; for
            a `folder` also for test; each only if it has no files of its own.
        crop_padding: largest random shift of training images, in pixels.
        flip: flip training images horizontally with probability 0.5.
        rotation: largest random rotation of training images in either direction, in degrees.
        scaling: largest random change of the size of training images, as a fraction.
        mixup: parameter of the distribution Beta(mixup, mixup) of mixup weights; 0 for no mixup.
        predict_folder: folder whose images `predict` classifies; default: the test set.
        loading: see LockstepDataModule.
    """

    extra = "images"

    validation_set: ImageDataset

    def __init__(
        self,
        dataset: Literal["digits", "cifar10", "cifar100", "folder"] = "digits",
        root: str | None = None,
        image_size: int = 64,
        validation_share: float = 0.1,
        crop_padding: int = 0,
        flip: bool = False,
        rotation: float = 0.0,
        scaling: float = 0.0,
        mixup: float = 0.0,
        predict_folder: str | None = None,
        **loading: Unpack[LoadingOptions],
    ) -> None:
        super().__init__(**loading)
        if dataset == "folder" and root is None:
            raise ValueError("data.init_args.root is null; set it to the folder with train/CLASS/FILE")
        check_number("data.init_args.image_size", image_size, at_least=1)
        check_number("data.init_args.validation_share", validation_share, above=0, below=1)
        check_numbers("data.init_args.", {"crop_padding": crop_padding, "mixup": mixup}, at_least=0)
        check_number("data.init_args.rotation", rotation, at_least=0, at_most=180)
        check_number("data.init_args.scaling", scaling, at_least=0, below=1)
        self.is_in_memory = dataset != "folder"
        self.dataset, self.root = dataset, Path(root or f"data/{dataset}")
        self.shape: tuple[int, int, int] = _SHAPES.get(dataset, (3, image_size, image_size))
        self.validation_share, self.predict_folder = validation_share, predict_folder
        self.augmentation, self.mixup = Augmentation(crop_padding, flip, rotation, scaling), mixup
        self._classes: list[str] | None = None

    @override
    def prepare(self) -> None:
        if self.dataset.startswith("cifar"):
            download_cifar(self.dataset, self.root)
        self.setup("fit")

    @cached_property
    def splits(self) -> ImageSplits:
        """Classes and images of all splits; cached."""
        if self.dataset == "digits":
            return digits(self.validation_share)
        if self.dataset == "folder":
            return read_folder(self.root, self.shape, self.validation_share)
        return read_cifar(self.dataset, self.root, self.validation_share)

    @property
    def classes(self) -> list[str]:
        """Class names by index; when predicting a folder, the module sets the class names of its checkpoint."""
        return self.splits.classes if self._classes is None else self._classes

    @classes.setter
    def classes(self, names: list[str]) -> None:
        self._classes = names

    @override
    def setup(self, stage: str) -> None:
        if stage == "predict" and self.predict_folder is not None:  # training images need not exist
            images = read_unlabeled(Path(self.predict_folder), self.shape)
            self.predict_set, self.image_name = ImageDataset(images), images.name
            log.info("%s: %d images to predict", self.predict_folder, len(images.labels))
            return
        splits = self.splits
        self.train_set = ImageDataset(splits.train, random=any(self.augmentation), mixup=self.mixup)
        self.validation_set, self.test_set = ImageDataset(splits.validation), ImageDataset(splits.test)
        self.predict_set, self.image_name = ImageDataset(splits.test), splits.test.name
        counts = (len(part.labels) for part in (splits.train, splits.validation, splits.test))
        log.info("%s: %d classes; %d images to train, %d to validate, %d to test",
                 self.dataset, len(splits.classes), *counts)  # fmt: skip

    def describe(self, row: int) -> dict[str, str]:
        """Return the fields of a prediction line that identify an image of `predict_set`."""
        return {"image": self.image_name(row)}

    @override
    def dataset_card(self) -> DatasetCard:
        splits, (channels, height, width) = self.splits, self.shape
        train, held_out, test = (len(part.labels) for part in (splits.train, splits.validation, splits.test))
        content = (
            f"{train:,} images to train, {held_out:,} to validate, {test:,} to test, of {len(splits.classes)} classes; "
            f"{height} x {width} pixels, {channels} channel(s)."
        )
        name, terms = _TERMS.get(self.dataset, (self.root.name, _OWN))
        return DatasetCard(name, content, terms)

    def validation_image(self, sample: int) -> tuple[str, NDArray[np.uint8]]:
        """Return name and pixels [C, H, W] of an image of `validation_set`."""
        source = self.splits.validation
        return source.name(sample), source.read(np.array([sample]))[0]

    @override
    def on_after_batch_transfer(self, batch: RawImages, dataloader_idx: int) -> ClassifierImages:
        # On the device, where the whole batch is changed at once, instead of image by image in the loaders.
        return prepare_batch(batch, len(self.classes), self.augmentation)
