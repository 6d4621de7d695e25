"""Evaluates image classifiers: the base class with metrics, previews, a confusion matrix and graded answers."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
from typing_extensions import override

from datamodules.image_classifier.batch import ClassifierImages
from datamodules.image_classifier.interface import ImageClassifierData
from engine.distributed.collectives import all_gather_objects
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer
from engine.telemetry.graded_answers import GradedAnswer, write_graded_answers
from engine.telemetry.sample_previews import PreviewReservoir, SamplePreview
from lightning_modules.image_classifier.confusion_matrix_plot import plot_confusion_matrix
from lightning_modules.image_classifier.sample_previews import ImagePreview, render_preview


class EvaluatedClassifier(LockstepModule[ImageClassifierData]):
    """Evaluates a classifier by its loss and accuracy, with a confusion matrix. A subclass computes `scores`."""

    preview_reservoir: PreviewReservoir[ImagePreview]

    @abstractmethod
    def scores(self, pixels: Tensor) -> Tensor:
        """Return logits [B, K] float32 with the weights that are evaluated."""

    def build_metrics(self, classes: int) -> None:
        """Build the metrics of an evaluation."""
        self.loss = MeanMetric()
        # Label -1 marks images without a known class, among them the padding of the last batch.
        self.accuracy = MulticlassAccuracy(classes, average="micro", ignore_index=-1)
        self.confusion = MulticlassConfusionMatrix(classes, ignore_index=-1)

    @override
    def on_validation_epoch_start(self) -> None:
        self.loss.set_dtype(torch.float32)  # Lightning casts it with the weights, even to 16 bits

    @override
    def on_test_epoch_start(self) -> None:
        self.loss.set_dtype(torch.float32)
        self._tested: dict[int, tuple[int, int]] = {}  # sample -> class, predicted class

    @override
    def validation_step(self, batch: ClassifierImages, batch_idx: int) -> None:
        scores = self.scores(batch.pixels)
        losses = cross_entropy(scores, batch.labels, ignore_index=-1, reduction="none")
        # Weighted by 0 or 1, so that the mean is over images and not over batches.
        self.loss.update(losses, (batch.labels >= 0).float())
        self.accuracy.update(scores, batch.labels)
        self.confusion.update(scores, batch.labels)
        self._keep_previews(scores, batch)
        if self.evaluation_stage == "test":
            rows = zip(batch.samples.tolist(), batch.labels.tolist(), scores.argmax(1).tolist(), strict=True)
            self._tested |= {sample: (label, best) for sample, label, best in rows if sample >= 0 and label >= 0}

    def _keep_previews(self, scores: Tensor, batch: ClassifierImages) -> None:
        if self.preview_reservoir.number:
            samples = batch.samples.tolist()
            for row in self.preview_reservoir.rows_to_keep(samples):
                share, label = scores[row].softmax(0).max(0)
                preview = ImagePreview(int(batch.labels[row]), int(label), float(share))
                self.preview_reservoir.keep(samples[row], preview)

    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        """Return previews of images: their classes and predictions."""
        return self.preview_reservoir.previews(self._example)

    def _example(self, sample: int, preview: ImagePreview) -> SamplePreview:
        return render_preview(*self.data.validation_image(sample), preview, self.data.classes)

    @override
    def on_validation_epoch_end(self) -> None:
        stage = self.evaluation_stage
        metrics = {f"{stage}/accuracy": self.accuracy.compute(), f"{stage}/loss": self.loss.compute()}
        self.log_dict(metrics, prog_bar=stage == "val", batch_size=1)
        # On every rank, because `compute` is collective; rank 0 plots it later.
        self._confusion_counts = self.confusion.compute()
        for metric in (self.loss, self.accuracy, self.confusion):
            metric.reset()

    @override
    def on_validation_end(self) -> None:
        # This hook, because TensorBoard's file exists once the metrics are logged, not earlier.
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            self._log_confusion_matrix(f"{self.evaluation_stage}/confusion")

    test_step, on_test_end = validation_step, on_validation_end

    @override
    def on_test_epoch_end(self) -> None:
        self.on_validation_epoch_end()
        # The samples of all ranks.
        tested = {
            sample: result
            for rank_results in all_gather_objects(self._tested)
            for sample, result in rank_results.items()
        }
        if self.trainer.is_global_zero and not as_run_trainer(self.trainer).fast_dev_run:
            write_graded_answers(Path(self.trainer.default_root_dir), "test/accuracy", self._graded_answers(tested))

    def _graded_answers(self, tested: Mapping[int, tuple[int, int]]) -> Iterator[GradedAnswer]:
        for sample, (label, predicted) in tested.items():
            name, classes = self.data.describe(sample)["image"], self.data.classes
            yield GradedAnswer(sample, name, classes[label], classes[predicted], float(label == predicted))

    def _log_confusion_matrix(self, title: str) -> None:
        """Log a plot of the confusion matrix to TensorBoard."""
        boards = [logger for logger in self.trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not boards:
            return
        figure = plot_confusion_matrix(self._confusion_counts, self.data.classes)
        boards[0].experiment.add_figure(title, figure, self.trainer.global_step)
