"""Computes image features for a language model."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from datamodules.multimodal.batch import ChatTrainBatch, ImageLayout, Images
from datamodules.multimodal.interface import ImageData
from lightning_modules.multimodal.checkpoints.base_model_identity import (
    describe_differences,
    tower_identity,
    weights_identity,
)
from lightning_modules.multimodal.checkpoints.stage_init import WeightOrigin
from lightning_modules.multimodal.connector.feature_order import order_features
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.modality import FeatureNetworks, ModalityFeatures
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower, tower_background, tower_shape

_EMBEDDING_STD = 0.02  # the initial standard deviation of most language models' embeddings


class ImageFeatures(ModalityFeatures[ImageData]):
    """Features of Images, any number of them in a chat.

    Where the data split images (`max_tiles` above 1), a learned embedding of the view's position in its image precedes
    the features of each view. Other tilings of the data place learned embeddings elsewhere, see `FeatureOrder`. They
    train at the projector's rate.

    Args:
        settings: vision tower.
        blind: compute all features from black images, as a baseline.
    """

    encoder_part = "vision_tower"
    token_metric = "image_tokens"
    optional_weights = ("places.",)

    def __init__(self, settings: VisionTowerSettings, blind: bool = False) -> None:
        super().__init__(blind)
        self.settings = settings

    def layout(self, projector: ProjectorSettings, data: ImageData) -> ImageLayout:
        """Return the sizes that tower, projector and data share.

        They follow from the settings alone, so that data can be prepared on a machine without the weights.

        Raises:
            ValueError: the tiling of the data does not allow them.
        """
        shape = tower_shape(self.settings)
        background = tower_background(self.settings)
        tokens = projector.count(shape.patches)
        layout = ImageLayout(shape.image_size, tokens, data.max_tiles, background, data.tiling)
        # LlavaNext lays the features of all tiles out as an image, and ends each of its lines with a learned vector.
        if layout.tiling == "llava_next" and (projector.kind == "resampler" or math.isqrt(tokens) ** 2 != tokens):
            raise ValueError(
                f"data.init_args.tiling: llava_next joins the features of tiles to one grid, but the projector "
                f"{projector.kind} returns {tokens} without rows and columns"
            )
        layout.check()
        return layout

    # -- networks ----------------------------------------------------------------------------------------------------

    @override
    def build_encoder(self, data: ImageData, precision: Precision) -> VisionTower:
        return VisionTower(self.settings, precision)

    @override
    def build_view_embeddings(self, data: ImageData, hidden_size: int) -> nn.Embedding | None:
        # The number of learned vectors depends on the tiling alone, so sizes are not needed here.
        learned = ImageLayout(0, 0, data.max_tiles, tiling=data.tiling).num_learned
        if not learned:
            return None
        embeddings = nn.Embedding(learned, hidden_size)
        nn.init.normal_(embeddings.weight, std=_EMBEDDING_STD)
        return embeddings

    @override
    def compute(self, networks: FeatureNetworks, inputs: Images) -> Features:
        views = self.blinded(inputs) if self.blind else inputs
        empty = len(views.pixels) == 0
        if empty:
            # Every weight takes part even without an image, because the other ranks wait for its gradient.
            views = _black_view(views)
        vectors = networks.projector(networks.encoder(views))  # [V, N, C]
        if inputs.order is not None:
            return order_features(vectors, networks.view_embeddings, inputs.order)
        if networks.view_embeddings is not None:
            # [V, 1, C], in front of the features of its view
            learned = networks.view_embeddings(views.tile_positions).unsqueeze(1).to(vectors.dtype)
            vectors = torch.cat((learned, vectors), dim=1)
        # [S]: each view has the same number of features
        counts = inputs.views * vectors.shape[1]
        # [V N, C], in the order of the placeholders
        vectors = vectors.flatten(0, 1)
        # An empty slice keeps the black view's graph: all gradients are zero, but there are gradients.
        return Features(vectors[:0] if empty else vectors, counts)

    @override
    def blinded(self, inputs: Images) -> Images:
        """Return as many black images."""
        return inputs._replace(pixels=torch.zeros_like(inputs.pixels))

    @override
    def flops(self, networks: FeatureNetworks, batch: ChatTrainBatch) -> int:
        return len(batch.encoder_input.pixels) * self.flops_of_view(networks)

    def flops_of_view(self, networks: FeatureNetworks) -> int:
        """Return the FLOPs of tower and projector for one view, forward and backward (see flops.py)."""
        if self._flops_of_view is None:
            encoder = networks.encoder
            projected = networks.projector.flops(encoder.shape.patches, behind_trained=not encoder.frozen)
            self._flops_of_view = encoder.flops() + projected
        return self._flops_of_view

    _flops_of_view: int | None = None  # `throughput_counts` reads it in every step

    # -- exports and checkpoints -------------------------------------------------------------------------------------

    @override
    def description(self, encoder: Any, data: ImageData) -> dict[str, Any]:
        shape, normalization = encoder.shape._asdict(), encoder.normalization._asdict()
        return {**asdict(self.settings), **shape, **normalization, "max_tiles": data.max_tiles, "tiling": data.tiling}

    @property
    @override
    def pretrained(self) -> dict[str, str | None]:
        return {"vision_tower": self.settings.path}

    @cached_property
    def _tower(self) -> dict[str, Any]:
        return tower_identity(self.settings)  # hashes the files of a pretrained tower

    @override
    def origins(self, checkpoint: Mapping[str, Any]) -> dict[str, WeightOrigin]:
        weights = partial(weights_identity, self.settings.path)
        return {"encoder": WeightOrigin(checkpoint.get("vision_tower") or {}, self._tower, ("architecture",), weights)}

    @override
    def identity(self) -> dict[str, Any]:
        return {"vision_tower": self._tower}

    @override
    def check_identity(self, checkpoint: Mapping[str, Any]) -> None:
        saved = checkpoint.get("vision_tower") or {}
        # The hashes of frozen weights would differ, too; this error names the tower and the setting.
        if problem := describe_differences(saved, self._tower, ("architecture", "weights")):
            raise ValueError(
                f"the checkpoint was trained with the vision tower {saved.get('name')}, the config has "
                f"{self._tower['name']}, and these differ: {problem}. Set model.init_args.vision_tower to what the "
                "checkpoint was trained with, or train anew under another --run_name"
            )


def _black_view(images: Images) -> Images:
    """Return a single black view, for a batch without images."""
    pixels: Tensor = images.pixels
    return images._replace(
        pixels=pixels.new_zeros((1, *pixels.shape[1:])), tile_positions=images.tile_positions.new_zeros(1)
    )
