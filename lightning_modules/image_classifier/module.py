"""The image classifier's LightningModule: a ResNet-18 or a small Vision Transformer."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix

from datamodules.image_classifier.batch import Images
from engine.checkpoint_file import head
from engine.exact_mean import LossSum
from engine.examples import Example
from engine.exported import Exported
from engine.module import LockstepModule
from engine.sampling import Draw
from engine.shown_samples import ShownSamples
from lightning_modules.image_classifier.card import described
from lightning_modules.image_classifier.confusion_picture import confusion_picture, require_matplotlib
from lightning_modules.image_classifier.export import Classifier, export
from lightning_modules.image_classifier.moving_average import MovingAverage
from lightning_modules.image_classifier.networks import Architecture, Kind
from lightning_modules.image_classifier.norm import Norm
from lightning_modules.image_classifier.shown_images import ShownImage, example

_COMPARED = 256
"""Images, at most, that an export is compared on."""


class ImageClassifier(LockstepModule):
    """Tells which one of K classes an image shows.

    Args:
        network: `resnet18` (for small images) or `vit`.
        width: channels of the ResNet's first stage, or of the transformer's tokens.
        norm: of the ResNet: `group`, `sync_batch` (over all processes) or `batch` (of each process alone, so that another number of processes is another training).
        patch_size: height and width of the transformer's patches, in pixels.
        depth: blocks of the transformer.
        heads: attention heads of the transformer.
        label_smoothing: share of each target that goes to all classes alike, in training.
        ema_decay: evaluate and predict with a moving average of the weights that keeps this share of itself in each step; null for the weights themselves.
        training: see LockstepModule.
    """  # noqa: E501

    network: nn.Module
    shown_samples: ShownSamples[ShownImage]

    def __init__(
        self,
        network: Kind = "resnet18",
        width: int = 64,
        norm: Norm = "group",
        patch_size: int = 4,
        depth: int = 6,
        heads: int = 3,
        label_smoothing: float = 0.0,
        ema_decay: float | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        if ema_decay is not None and not 0 < ema_decay < 1:
            raise ValueError(f"model.init_args.ema_decay is {ema_decay}, expected null or between 0 and 1")
        self.architecture = Architecture(network, width, norm, patch_size, depth, heads)
        self.label_smoothing, self.ema_decay = label_smoothing, ema_decay
        self.average: MovingAverage | None = None

    def hidden_matrices(self) -> set[nn.Parameter]:
        return super().hidden_matrices() - {self.network.head.weight}

    def setup(self, stage: str) -> None:
        super().setup(stage)
        require_matplotlib()
        if self.ema_decay is not None:
            self._require_average()
        checkpoint = getattr(self.trainer, "checkpoint_to_load", None)
        if stage == "predict" and self.data.predict_folder is not None and checkpoint is not None:
            # Whoever predicts has the checkpoint, and not always the training images.
            self.data.classes = head(Path(checkpoint)).get("classes") or self.data.classes

    def _require_average(self) -> None:
        if isinstance(self.trainer.strategy, (FSDPStrategy, ModelParallelStrategy)):
            raise ValueError("model.init_args.ema_decay averages whole weights and FSDP has shards: null, or ddp")
        if self.trainer.precision in ("bf16-true", "16-true"):
            raise ValueError(
                f"model.init_args.ema_decay is {self.ema_decay}, but with trainer.precision {self.trainer.precision} "
                "what a step adds to the average rounds to nothing: ema_decay null, or precision bf16-mixed"
            )

    def configure_model(self) -> None:
        if hasattr(self, "network"):
            return
        classes = len(self.data.classes)
        self.network = self.architecture.build(self.data.shape, classes)
        if self.ema_decay is not None:
            self.average = MovingAverage(self.network, self.ema_decay)
            # Equal on all processes as it is; DDP would send it around in every step.
            self._ddp_params_and_buffers_to_ignore = [f"average.{name}" for name, _ in self.average.named_buffers()]
        self.loss = MeanMetric()
        self.accuracy = MulticlassAccuracy(classes, average="micro", ignore_index=-1)
        self.confusion = MulticlassConfusionMatrix(classes, ignore_index=-1)

    # -- training ----------------------------------------------------------------------------------------------------

    def training_loss(self, batch: Images) -> LossSum:
        scores = self.network(self._as_weights(batch.pixels)).float()
        losses = cross_entropy(scores, batch.targets, label_smoothing=self.label_smoothing, reduction="none")
        real = batch.labels >= 0
        return LossSum((losses * real).sum(), real.sum())

    def amounts(self, batch: Images) -> dict[str, float]:
        return {"images": len(batch.labels)}

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        super().optimizer_step(*arguments, **options)
        if self.average is not None:
            self.average.update(self.network, self.trainer.global_step)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def scores(self, pixels: Tensor) -> Tensor:
        """[B, K] float32, by the weights that are evaluated."""
        pixels = self._as_weights(pixels)
        return (self.network(pixels) if self.average is None else self.average.of(self.network, pixels)).float()

    def _as_weights(self, pixels: Tensor) -> Tensor:
        """Lightning converts a batch to `trainer.precision` before its images are made of it."""
        return pixels.to(next(self.network.parameters()).dtype)

    def on_validation_epoch_start(self) -> None:
        self.loss.set_dtype(torch.float32)  # Lightning has it follow the weights, also to 16 bits
        if self.architecture.norm == "batch" and self.trainer.world_size > 1:
            # Each process has statistics of its own images; what is evaluated is what a checkpoint has.
            for statistic in self.buffers():
                torch.distributed.broadcast(statistic, 0)

    def on_test_epoch_start(self) -> None:
        self.loss.set_dtype(torch.float32)

    def validation_step(self, batch: Images, batch_idx: int) -> None:
        scores = self.scores(batch.pixels)
        losses = cross_entropy(scores, batch.labels, ignore_index=-1, reduction="none")
        self.loss.update(losses, (batch.labels >= 0).float())
        self.accuracy.update(scores, batch.labels)
        self.confusion.update(scores, batch.labels)
        self._keep_shown(scores, batch)

    def _keep_shown(self, scores: Tensor, batch: Images) -> None:
        if self.shown_samples.number:
            samples = batch.samples.tolist()
            for place in self.shown_samples.places(samples):
                share, label = scores[place].softmax(0).max(0)
                shown = ShownImage(int(batch.labels[place]), int(label), float(share))
                self.shown_samples.keep(samples[place], shown)

    def examples(self) -> list[Callable[[], Example]]:
        """Images with their classes and what they were taken for."""
        return [partial(self._example, *found) for found in self.shown_samples.of_all_processes()]

    def _example(self, sample: int, shown: ShownImage) -> Example:
        return example(*self.data.validation_image(sample), shown, self.data.classes)

    def on_validation_epoch_end(self) -> None:
        figures = {f"{self._stage}/accuracy": self.accuracy.compute(), f"{self._stage}/loss": self.loss.compute()}
        self.log_dict(figures, prog_bar=self._stage == "val", batch_size=1)
        self._confused = self.confusion.compute()
        for metric in (self.loss, self.accuracy, self.confusion):
            metric.reset()

    def on_validation_end(self) -> None:
        # Not before the figures are logged: until then there is no file for pictures.
        if self.trainer.is_global_zero and not self.trainer.sanity_checking:
            self._draw(f"{self._stage}/confusion")

    test_step, on_test_epoch_end, on_test_end = validation_step, on_validation_epoch_end, on_validation_end

    @property
    def _stage(self) -> str:
        return "test" if self.trainer.state.fn == "test" else "val"

    def _draw(self, title: str) -> None:
        """The confusion matrix into TensorBoard: true classes down, predicted ones across."""
        boards = [logger for logger in self.trainer.loggers if isinstance(logger, TensorBoardLogger)]
        if not boards:
            return
        picture = confusion_picture(self._confused, self.data.classes)
        boards[0].experiment.add_figure(title, picture, self.trainer.global_step)

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict_step(self, batch: Images, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        best = self.scores(batch.pixels).softmax(1).max(1)
        rows = zip(batch.samples.tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            (row, {**self.data.describe(row), "class": self.data.classes[label], "probability": round(share, 4)})
            for row, label, share in rows
            if row >= 0
        ]

    # -- other forms -------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def export(self, folder: Path, merge: bool) -> Exported:
        """Writes a graph for onnxruntime and the weights: those that are evaluated."""
        if merge:
            raise ValueError("export --merge: an image classifier has no language model to merge anything into")
        self.eval()
        self.data.setup("validate")
        number = len(self.data.validation_set)
        rows = np.linspace(0, number - 1, min(number, _COMPARED)).astype(np.int64)
        images = np.stack([self.data.validation_image(row)[1] for row in rows.tolist()])
        batch = self.data.on_after_batch_transfer(self.data.validation_set[Draw(0, rows)], 0)
        expected = self.scores(batch.pixels).numpy()
        if self.average is not None:
            self.network.load_state_dict(self.average.state)
        classifier = Classifier(self.network, self.architecture, self.data.classes, self.data.shape)
        checked = export(classifier, folder, images, expected)
        return described(classifier, self.average is not None, checked)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["classes"] = list(self.data.classes)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        found, expected = checkpoint.get("classes"), self.data.classes
        if found != expected:
            raise ValueError(f"the checkpoint is of classes {found}, the data have {expected}; give the same data")
