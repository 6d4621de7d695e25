"""Classifies a picture, and shows the training images that are most similar to it."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Bar, Bars, Picture, Pictures, png_data_url
from commands.answers.answer_service import (
    AnswerService,
    Example,
    InputField,
    UploadedFile,
    UserInputError,
    UserQuestion,
)
from commands.answers.compared_runs import fingerprint
from datamodules.image_classifier.batch import ClassifierImages
from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.image_classifier.dataset import ImageDataset
from datamodules.image_classifier.sources.image_folder import SUFFIXES
from datamodules.image_classifier.sources.image_source import ArrayImages, ImageSource, fitted_pixels
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from lightning_modules.image_classifier.module import ImageClassifier

_MAX_COMPARED = 2000
"""Largest number of training images among which the most alike are searched."""

_ALIKE, _EXAMPLES, _SHOWN_CLASSES = 6, 8, 10
_SHOWN_PIXELS = 96


class ClassifierAnswers(AnswerService):
    """Classifies a picture that is dropped, drawn or taken by a camera.

    Args:
        model: classifier with its weights.
        data: data module of the run, set up for prediction.
    """

    task = "Give a picture, and the model names its class."

    def __init__(self, model: ImageClassifier, data: LabelledImages) -> None:
        self._model, self._data = model, data
        self._train = _evenly_spaced(data.splits.train, _MAX_COMPARED)
        self._features: Tensor | None = None  # of `_train`, computed at the first question
        # A visitor draws on black if the training images are dark on average.
        paper = "#000" if self._train.read(np.arange(len(self._train.labels))).mean() < 128 else "#fff"
        channels, height, width = data.shape
        self.fields = [
            InputField(
                "picture",
                "picture",
                "Picture",
                f"It is scaled and cropped to {height} x {width} pixels, as for training.",
                SUFFIXES,
                draw=("#fff" if paper == "#000" else "#000", paper),
                camera=True,
            )
        ]
        self.about = [("classes", f"{len(data.classes)}"), ("input", f"{channels} x {height} x {width}")]

    @override
    def examples(self) -> list[Example]:
        source = _evenly_spaced(self._data.splits.test, _EXAMPLES)
        examples = []
        for row, label in enumerate(source.labels.tolist()):
            url = _url(source.read(np.array([row]))[0])
            file = UploadedFile(f"{source.name(row).rpartition('/')[2]}.png", _png(source.read(np.array([row]))[0]))
            examples.append(Example(self._data.classes[label], {"picture": [file]}, url))
        return examples

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        pixels = self._pixels(file)
        yield Pictures("given", "", [Picture(_url(pixels), "as the model sees it")])

    @override
    def data_identity(self) -> dict[str, str]:
        return {"classes": fingerprint(self._data.classes)}

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        pixels = self._pixels(question.file("picture"))
        # -1: the class is unknown.
        picture = ArrayImages(pixels[None], np.array([-1]), "picture")
        shares = self._compute_in_batches(picture, self._model.scores)[0].softmax(0)
        order = shares.argsort(descending=True)[:_SHOWN_CLASSES].tolist()
        bars = [Bar(self._data.classes[label], round(float(shares[label]), 4)) for label in order]
        yield Bars("classes", "Classes", bars)
        yield self._most_alike(self._last_inputs(picture)[0])

    def _most_alike(self, features: Tensor) -> Pictures:
        if self._features is None:
            self._features = self._last_inputs(self._train)
        similarity = normalize(self._features, dim=1) @ normalize(features, dim=0)
        pictures = []
        for row in similarity.argsort(descending=True)[:_ALIKE].tolist():
            label = self._data.classes[int(self._train.labels[row])]
            url = _url(self._train.read(np.array([row]))[0])
            pictures.append(Picture(url, f"{label}, {float(similarity[row]):.2f}", self._train.name(row)))
        number = len(self._train.labels)
        note = f"Cosine similarity of the last layer's input, among {number:,} training images."
        return Pictures("alike", "Most alike training images", pictures, note)

    def _pixels(self, file: UploadedFile) -> NDArray[np.uint8]:
        try:
            return fitted_pixels(file.content, file.name, self._data.shape)
        except BadSampleError as error:
            raise UserInputError(str(error)) from error

    def _last_inputs(self, source: ImageSource) -> Tensor:
        """Return the inputs of the last layer [N, C] float32 on the CPU, for the images without shifts."""
        inputs: list[Tensor] = []
        # A hook sees what the network passes to its last layer, so the network needs no second forward method.
        hook = self._model.network.head.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
        try:
            self._compute_in_batches(source, self._model.logits)
        finally:
            # Otherwise a later answer would append its inputs to this list, too.
            hook.remove()
        return torch.cat(inputs).float().cpu()

    def _compute_in_batches(self, source: ImageSource, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what `compute` returns for the pixels of all images, on the CPU."""
        size, device = self._data.evaluation_batch_size, self._model.device
        results = []
        for start in range(0, len(source.labels), size):
            rows = np.arange(start, min(start + size, len(source.labels)))
            raw = ImageDataset(source)[MicroBatchRequest(0, rows)]
            moved = self._model.transfer_batch_to_device(raw, device, 0)
            batch: ClassifierImages = self._data.on_after_batch_transfer(moved, 0)
            results.append(compute(batch.pixels).cpu())
        return torch.cat(results)


def _evenly_spaced(source: ImageSource, limit: int) -> ImageSource:
    number = len(source.labels)
    return source.subset(np.unique(np.linspace(0, number - 1, min(number, limit)).astype(np.int64)))


def _image(pixels: NDArray[np.uint8]) -> Any:
    from PIL import Image

    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def _url(pixels: NDArray[np.uint8]) -> str:
    return png_data_url(_image(pixels), _SHOWN_PIXELS)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    _image(pixels).save(buffer, "PNG")
    return buffer.getvalue()
