"""Trains an image classifier, a ResNet-18 or a small Vision Transformer: the family's LightningModule."""

from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typing_extensions import override

from datamodules.image_classifier.batch import ClassifierImages
from engine.base_options import TrainingOptions, Unpack
from engine.checkpointing.checkpoint_schema import declare_part, require_structure
from engine.checkpointing.schema import TEXT, list_of
from engine.checkpointing.verification import load_lazily
from engine.data.samplers import MicroBatchRequest
from engine.export.artifacts import ExportedModel
from engine.lightning_internals.processes import ignore_in_ddp
from engine.number_check import check_number, check_numbers
from engine.optim.global_loss_mean import LossSum
from engine.strategies.fsdp import has_sharded_weights
from lightning_modules.image_classifier.evaluated_classifier import EvaluatedClassifier
from lightning_modules.image_classifier.export.model_card import model_card
from lightning_modules.image_classifier.export.onnx_export import Classifier, export_classifier
from lightning_modules.image_classifier.export.runtime import load_classifier
from lightning_modules.image_classifier.networks.architecture import Architecture, Kind
from lightning_modules.image_classifier.networks.normalization import Norm
from lightning_modules.image_classifier.networks.resnet import ResNet18
from lightning_modules.image_classifier.networks.vit import VisionTransformer
from lightning_modules.image_classifier.shift_averaging import MAX_SHIFT, average_over_shifts
from lightning_modules.image_classifier.weight_averaging import MovingAverage

declare_part("classes", list_of(TEXT))

_MAX_COMPARED = 256
"""Largest number of images that an export is compared on."""


class ImageClassifier(EvaluatedClassifier):
    """Classifies images into K classes.

    Args:
        network: `resnet18` (for small images) or `vit`.
        width: channels of the ResNet's first stage, or of the transformer's tokens.
        norm: normalization of the ResNet: `group`, `sync_batch` (over all ranks) or `batch` (of each rank, so the
            training depends on the world size).
        patch_size: height and width of the transformer's patches, in pixels.
        depth: number of blocks of the transformer.
        heads: number of attention heads of the transformer.
        label_smoothing: share of each training target that is spread over all classes.
        ema_decay: evaluate and predict with an exponential moving average of the weights with this decay; null: with
            the weights themselves.
        evaluation_shift: evaluate and predict with the mean of the class probabilities over all shifts of an image by
            up to so many pixels (1: nine copies of each image); 0: of the image alone.
        training: see LockstepModule.
    """

    extra = "images"
    export_extra = "onnx"

    network: ResNet18 | VisionTransformer

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
        evaluation_shift: int = 0,
        **training: Unpack[TrainingOptions],
    ) -> None:
        super().__init__(**training)
        check_number("model.init_args.ema_decay", ema_decay, above=0, below=1)
        sizes = {"width": width, "patch_size": patch_size, "depth": depth, "heads": heads}
        check_numbers("model.init_args.", sizes, at_least=1)
        check_number("model.init_args.label_smoothing", label_smoothing, at_least=0, below=1)
        check_number("model.init_args.evaluation_shift", evaluation_shift, at_least=0, at_most=MAX_SHIFT)
        self.architecture = Architecture(network, width, norm, patch_size, depth, heads)
        self.label_smoothing, self.ema_decay = label_smoothing, ema_decay
        self.evaluation_shift = evaluation_shift
        self.average: MovingAverage | None = None

    @override
    def hidden_matrices(self) -> set[Tensor]:
        return super().hidden_matrices() - {self.network.head.weight}

    @override
    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.ema_decay is not None:
            self._require_average()
        checkpoint = getattr(self.trainer, "checkpoint_to_load", None)
        if stage == "predict" and self.data.predict_folder is not None and checkpoint is not None:
            # A prediction needs the checkpoint, but not the training images.
            content = load_lazily(Path(checkpoint))
            require_structure(content, Path(checkpoint))
            self.data.classes = content.get("classes") or self.data.classes

    def _require_average(self) -> None:
        if has_sharded_weights(self.trainer.strategy):
            raise ValueError(
                "model.init_args.ema_decay averages whole weights, which FSDP shards: set it to null, or use ddp"
            )
        # With a decay of 0.999 a step adds a thousandth of the difference, below the 8 bits of bf16's mantissa.
        if self.trainer.precision in ("bf16-true", "16-true"):
            raise ValueError(
                f"model.init_args.ema_decay is {self.ema_decay}, but with trainer.precision {self.trainer.precision} "
                "what a step adds to the average rounds to nothing: ema_decay null, or precision bf16-mixed"
            )

    @override
    def configure_model(self) -> None:
        if hasattr(self, "network"):
            return
        classes = len(self.data.classes)
        # The network is built before the average, which copies its initial weights.
        self.network = self.architecture.build(self.data.shape, classes)
        if self.ema_decay is not None:
            self.average = MovingAverage(self.network, self.ema_decay)
            # The average is equal on all ranks. DDP would broadcast it in every step.
            ignore_in_ddp(self, [f"average.{name}" for name, _ in self.average.named_buffers()])
        self.build_metrics(classes)

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def training_loss(self, batch: ClassifierImages) -> LossSum:
        scores = self.network(self._as_weights(batch.pixels)).float()  # [B, K]
        losses = cross_entropy(scores, batch.targets, label_smoothing=self.label_smoothing, reduction="none")
        # Padding of the last micro-batch has label -1 and does not count.
        real = batch.labels >= 0
        return LossSum((losses * real).sum(), real.sum())

    @override
    def throughput_counts(self, batch: ClassifierImages) -> dict[str, float]:
        return {"images": len(batch.labels)}

    @override
    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        super().optimizer_step(*arguments, **options)
        if self.average is not None:
            self.average.update(self.network, self.trainer.global_step)

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def scores(self, pixels: Tensor) -> Tensor:
        return average_over_shifts(self.logits, pixels, self.evaluation_shift)

    def logits(self, pixels: Tensor) -> Tensor:
        """Return logits [B, K] of the images themselves, without shifts, with the weights that are evaluated."""
        pixels = self._as_weights(pixels)
        return self.network(pixels) if self.average is None else self.average.apply_to(self.network, pixels)

    def _as_weights(self, pixels: Tensor) -> Tensor:
        """Cast pixels to the dtype of the weights: Lightning casts a batch before its images are decoded."""
        return pixels.to(next(self.network.parameters()).dtype)

    @override
    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        if self.architecture.norm == "batch" and self.trainer.world_size > 1:
            # Each rank has statistics of its own images. A checkpoint contains the statistics of rank 0.
            for statistic in self.buffers():
                torch.distributed.broadcast(statistic, 0)

    # -- prediction --------------------------------------------------------------------------------------------------

    @override
    def predict_step(self, batch: ClassifierImages, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        best = self.scores(batch.pixels).softmax(1).max(1)
        rows = zip(batch.samples.tolist(), best.indices.tolist(), best.values.tolist(), strict=True)
        return [
            (row, {**self.data.describe(row), "class": self.data.classes[label], "probability": round(share, 4)})
            for row, label, share in rows
            if row >= 0
        ]

    # -- exports -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write a graph for onnxruntime, and the weights, both as they are evaluated."""
        if merge:
            raise ValueError("export --merge: an image classifier has no adapters to merge")
        self.eval()
        self.data.setup("validate")
        number = len(self.data.validation_set)
        rows = np.linspace(0, number - 1, min(number, _MAX_COMPARED)).astype(np.int64)
        images = np.stack([self.data.validation_image(row)[1] for row in rows.tolist()])
        batch = self.data.on_after_batch_transfer(self.data.validation_set[MicroBatchRequest(0, rows)], 0)
        expected = self.scores(batch.pixels).numpy()
        if self.average is not None:
            self.network.load_state_dict(self.average.state)
        classifier = Classifier(
            self.network, self.architecture, self.data.classes, self.data.shape, self.evaluation_shift
        )
        checked = export_classifier(classifier, folder, images, expected)
        return model_card(classifier, self.average is not None, checked)

    @override
    def load_export(self, folder: Path) -> None:
        exported = load_classifier(folder)
        found, expected = (exported.shape, exported.classes), (self.data.shape, self.data.classes)
        if found != expected:
            raise ValueError(
                f"{folder}: found an export of {found}, the data have {expected}; give an export of this run"
            )
        assert isinstance(exported.network, (ResNet18, VisionTransformer)), "Architecture.build returns one of them"
        self.network, self.average = exported.network, None  # the export has the average
        self.evaluation_shift = exported.evaluation_shift

    # -- checkpoints -------------------------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["classes"] = list(self.data.classes)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        found, expected = checkpoint.get("classes"), self.data.classes
        if found != expected:
            pairs = zip_longest(expected, found or [])
            index, pair = next(item for item in enumerate(pairs) if item[1][0] != item[1][1])
            of_data, of_checkpoint = (name or "none" for name in pair)
            raise ValueError(
                f"class {index}: found {of_data} in the data, expected {of_checkpoint} as in the checkpoint, which has "
                f"{len(found or [])} classes; use the data of the training"
            )
