"""Sees: a vision tower makes features of images, for any module that reads them."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from datamodules.multimodal.batch import ImageLayout, Images
from lightning_modules.multimodal.base_identity import differences, tower_identity, weights_identity
from lightning_modules.multimodal.composition import ComposedModule
from lightning_modules.multimodal.earlier_stage import Origin
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.splice import Features
from lightning_modules.multimodal.vision_tower import VisionTower, tower_background, tower_shape
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings

_PLACE_SCALE = 0.02  # standard deviation of language models' embeddings at the start


class ImageModule(ComposedModule):
    """Reads images, any number of them in a chat. Its features are of Images.

    Where the data split images (`max_tiles` above 1), each view's features follow a learnt embedding that says where
    in its image the view lies; it trains at the projector's rate.

    Args:
        language_model: the language model that reads the features.
        vision_tower: makes features of an image's patches.
        projector: from the tower's features to the language model's.
        blind: train and evaluate on black images, as a baseline.
        training: see ComposedModule and LockstepModule; the parts that may have a rate of their own in `learning_rates` are vision_tower, projector and language_model.
    """  # noqa: E501

    may_be_new = ("places.",)

    encoder: VisionTower
    places: nn.Embedding | None

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        **training: Any,
    ) -> None:
        super().__init__(language_model, projector=projector, **training)
        self.vision_tower_settings, self.blind = vision_tower, blind

    # -- sizes, for the data -----------------------------------------------------------------------------------------

    @cached_property
    def image_layout(self) -> ImageLayout:
        """Known before anything is built, so that data can be made on a machine of their own."""
        shape = tower_shape(self.vision_tower_settings)
        tokens = self.projector_settings.count(shape.patches)
        background = tower_background(self.vision_tower_settings)
        return ImageLayout(shape.image_size, tokens, self.data.max_tiles, background)

    # -- building ----------------------------------------------------------------------------------------------------

    def build_encoder(self) -> nn.Module:
        return VisionTower(self.vision_tower_settings, self.formats)

    def encoder_description(self) -> dict[str, Any]:
        tower = self.encoder
        shape, normalisation = tower.shape._asdict(), tower.normalisation._asdict()
        return {**asdict(self.vision_tower_settings), **shape, **normalisation, "max_tiles": self.data.max_tiles}

    @property
    def pretrained(self) -> dict[str, str | None]:
        return {"vision_tower": self.vision_tower_settings.path, **super().pretrained}

    @cached_property
    def tower(self) -> dict[str, Any]:
        """What identifies the vision tower that this one is built on."""
        return tower_identity(self.vision_tower_settings)

    def origins(self, earlier: Mapping[str, Any]) -> dict[str, Origin]:
        weights = partial(weights_identity, self.vision_tower_settings.path)
        tower = Origin(earlier.get("vision_tower") or {}, self.tower, ("architecture",), weights)
        return {**super().origins(earlier), "encoder": tower}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["vision_tower"] = self.tower

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint.get("vision_tower") or {}
        if problem := differences(saved, self.tower, ("architecture", "weights")):
            raise ValueError(
                f"the checkpoint was trained with the vision tower {saved.get('name')}, the config has "
                f"{self.tower['name']}, and these differ: {problem}. Set model.init_args.vision_tower to what the "
                "checkpoint was trained with, or train anew under another --run_name"
            )
        super().on_load_checkpoint(checkpoint)

    def build(self) -> None:
        super().build()
        self.places = None
        tiles = self.image_layout.max_tiles
        if tiles > 1:
            self.places = nn.Embedding(1 + tiles**2, self.language_model.hidden_size)
            nn.init.normal_(self.places.weight, std=_PLACE_SCALE)

    @property
    def parts(self) -> dict[str, nn.Module]:
        projection = nn.ModuleList([self.projector] if self.places is None else [self.projector, self.places])
        return {"vision_tower": self.encoder, "projector": projection, "language_model": self.language_model}

    # -- features ----------------------------------------------------------------------------------------------------

    def features(self, modality: Images) -> Features:
        counts = self.feature_counts(modality)
        views = self.blinded(modality) if self.blind else modality
        nothing = len(views.pixels) == 0
        if nothing:
            # Without an image, too, every weight takes part: other processes wait for its gradient.
            views = self._black_view(views)
        vectors = self.projector(self.encoder(views))
        if self.places is not None:
            where = self.places(views.places).unsqueeze(1).to(vectors.dtype)
            vectors = torch.cat((where, vectors), dim=1)
        vectors = vectors.flatten(0, 1)
        return Features(vectors[:0] if nothing else vectors, counts)

    @cached_property
    def flops_of_a_view(self) -> int:
        """Of tower and projector, forward and backward, see flops.py."""
        projected = self.projector.flops(self.encoder.shape.patches, behind_trained=not self.encoder.frozen)
        return self.encoder.flops() + projected

    def feature_counts(self, modality: Images) -> Tensor:
        return modality.views * self.image_layout.view_tokens

    def blinded(self, modality: Images) -> Images:
        """Black images, as many as before."""
        return modality._replace(pixels=torch.zeros_like(modality.pixels))

    @staticmethod
    def _black_view(nothing: Images) -> Images:
        pixels, places = nothing.pixels, nothing.places
        return nothing._replace(pixels=pixels.new_zeros((1, *pixels.shape[1:])), places=places.new_zeros(1))

    # -- other forms -------------------------------------------------------------------------------------------------

    @property
    def own_networks(self) -> dict[str, nn.Module]:
        return {**super().own_networks, **({} if self.places is None else {"places": self.places})}
