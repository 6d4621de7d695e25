"""Computes features of series for a language model."""

from typing import Any

import torch
from torch.nn.functional import pad
from typing_extensions import override

from datamodules.multimodal.batch import ChatTrainBatch
from datamodules.temporal.batch import Series
from datamodules.temporal.interface import TemporalData
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.modality import FeatureNetworks, ModalityFeatures
from lightning_modules.temporal.series_encoder import SeriesEncoder


class SeriesFeatures(ModalityFeatures[TemporalData]):
    """Features of Series, one series in a chat at most, or any number with `Series.per_sample`.

    Args:
        settings: arguments of the SeriesEncoder, beside the layout.
        blind: compute all features from series without measurements, as a baseline.
    """

    def __init__(self, settings: dict[str, Any], blind: bool = False) -> None:
        super().__init__(blind)
        self.settings = settings

    @override
    def build_encoder(self, data: TemporalData, precision: Precision) -> SeriesEncoder:
        return SeriesEncoder(data.layout, **self.settings)

    @override
    def compute(self, networks: FeatureNetworks, inputs: Series) -> Features:
        series = self.blinded(inputs) if self.blind else inputs
        vectors = networks.projector(networks.encoder(series))
        counts = networks.encoder.layout.feature_count(series.lengths)
        # The layout counts one feature even of an empty series where all steps become one.
        counts = torch.where(series.lengths > 0, counts, 0)
        if series.per_sample is not None:  # in the order of the series, so each sample has a run of them
            # The zero before the first series is the end of samples that have none.
            ends = pad(counts.cumsum(0), (1, 0))[series.per_sample.cumsum(0)]
            counts = ends.diff(prepend=ends.new_zeros(1))
        return Features(vectors, counts)

    @override
    def blinded(self, inputs: Series) -> Series:
        """Return series of the same lengths in which every measurement is missing."""
        # The lengths remain, so a blind model gets as many features and its chats do not change.
        return inputs._replace(values=inputs.values * 0, present=inputs.present & False)

    @override
    def flops(self, networks: FeatureNetworks, batch: ChatTrainBatch) -> int:
        projected = batch.rows.counts.features * networks.projector.flops(1, behind_trained=True)
        return networks.encoder.flops(batch.encoder_input) + projected

    @override
    def description(self, encoder: object, data: TemporalData) -> dict[str, Any]:
        return {**self.settings, "layout": data.layout._asdict()}
