"""Defines the interface between the image classifier's module and its data."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from datamodules.image_classifier.batch import ClassifierImages
from datamodules.image_classifier.dataset import RawImages
from engine.data.batched_dataset import BatchedDataset
from engine.interface import LockstepData


class ImageClassifierData(LockstepData, Protocol):
    """Images of the same size, labeled with K classes. LabelledImages implements it."""

    classes: list[str]
    """Class names by index, K in all; when predicting a folder, the module sets the names of its checkpoint."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of all images; height and width in pixels."""

    @property
    def predict_folder(self) -> str | None:
        """The folder whose images `predict` classifies; None for the test set."""

    @property
    def validation_set(self) -> BatchedDataset[RawImages]:
        """The validation data set; available from `setup` on."""

    def setup(self, stage: str) -> None:
        """Create the data sets of a stage: `fit`, `validate`, `test` or `predict`."""

    def on_after_batch_transfer(self, batch: RawImages, dataloader_idx: int) -> ClassifierImages:
        """Augment (in training) and normalize a batch."""

    def validation_image(self, sample: int) -> tuple[str, NDArray[np.uint8]]:
        """Return name and pixels [C, H, W] of an image of `validation_set`."""

    def describe(self, row: int) -> Mapping[str, Any]:
        """Return the fields of a prediction line that identify an image of `predict_set`."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.image_classifier.datamodule import LabelledImages

    def _provided(data: LabelledImages) -> ImageClassifierData:
        return data
