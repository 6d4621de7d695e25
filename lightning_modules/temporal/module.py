"""The temporal family's LightningModule: a language model that reads resource timelines."""

from typing import Any

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import Examples
from datamodules.temporal.batch import Series
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.module import Answer, MultimodalModule
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.splice import Features
from lightning_modules.temporal.encoder import Pooling, SeriesEncoder


class TimelineReader(MultimodalModule):
    """Answers questions about curves: their trend, their bottlenecks, what fits in, what stands where.

    Args:
        language_model: the language model that reads the features.
        projector: from the encoder's features to the language model's.
        encoder_size: width of the encoder's convolutions.
        feature_size: width of the features that the encoder hands to the projector.
        kernel_sizes: of the encoder's convolutions, in steps; one layer for each.
        pooling: `mean` or `max` over the steps, where the data have one feature for a whole series.
        encoder_dropout: share of the encoder's activations dropped in training.
        blind: train and evaluate without the series, as a baseline.
        training: see MultimodalModule and LockstepModule.
    """

    encoder: SeriesEncoder

    def __init__(
        self,
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        encoder_size: int = 32,
        feature_size: int = 128,
        kernel_sizes: tuple[int, ...] = (3, 5, 7),
        pooling: Pooling = "mean",
        encoder_dropout: float = 0.0,
        blind: bool = False,
        **training: Any,
    ) -> None:
        super().__init__(language_model, projector=projector, **training)
        kind = self.projector_settings.kind
        if kind in ("pixel_shuffle", "resampler"):
            raise ValueError(f"model.init_args.projector.kind is {kind}, for features of pictures; a series is none")
        self.blind = blind
        self.encoder_settings: dict[str, Any] = {
            "output_size": feature_size,
            "hidden_size": encoder_size,
            "kernel_sizes": tuple(kernel_sizes),
            "pooling": pooling,
            "dropout": encoder_dropout,
        }

    def build_encoder(self) -> nn.Module:
        return SeriesEncoder(self.data.layout, **self.encoder_settings)

    def encoder_description(self) -> dict[str, Any]:
        return {**self.encoder_settings, "layout": self.data.layout._asdict()}

    def features(self, modality: Series) -> Features:
        return super().features(self.blinded(modality) if self.blind else modality)

    def feature_flops(self, examples: Examples) -> int:
        projected = examples.rows.counts.features * self.projector.flops(1, behind_trained=True)
        return self.encoder.flops(examples.modality) + projected

    def feature_counts(self, modality: Series) -> Tensor:
        counts = self.data.layout.count(modality.lengths)
        return torch.where(modality.lengths > 0, counts, 0)

    def blinded(self, modality: Series) -> Series:
        """Nothing was measured, for as long as before."""
        return modality._replace(values=modality.values * 0, present=modality.present & False)

    def baseline_answers(self, sample: int) -> dict[str, str]:
        return {"rules": self.data.right_answer(sample)}

    def report(self, answers: list[Answer]) -> None:
        self.data.write_prediction_report(self.trainer.default_root_dir, answers)
