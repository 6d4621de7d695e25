"""The vision-language family's LightningModule: a language model that sees."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn

from datamodules.multimodal.batch import Examples, ImageLayout, Images
from lightning_modules.multimodal.base_identity import differences, tower_identity, weights_identity
from lightning_modules.multimodal.earlier_stage import Origin
from lightning_modules.multimodal.export import new_directory
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.module import Answer, Features, MultimodalModule
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.vision_tower import VisionTower, tower_background, tower_shape
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings
from lightning_modules.vision_language import answer_sheet, llava_export
from lightning_modules.vision_language.answer_sheet import ShownAnswer

log = logging.getLogger("lockstep")

_PLACE_SCALE = 0.02  # standard deviation of language models' embeddings at the start


class VisionLanguageModel(MultimodalModule):
    """Answers questions about images, any number of them in a chat.

    Where the data split images (`max_tiles` above 1), each view's features follow a learnt embedding that says where
    in its image the view lies; it trains at the projector's rate.

    Args:
        language_model: the language model that reads the features.
        vision_tower: makes features of an image's patches.
        projector: from the tower's features to the language model's.
        blind: train and evaluate on black images, as a baseline.
        shown_answers: samples of each validation that TensorBoard shows with their images and what was answered (val/answers).
        training: see MultimodalModule and LockstepModule; the parts that may have a rate of their own in `learning_rates` are vision_tower, projector and language_model.
    """  # noqa: E501

    features_name = "image_tokens"
    may_be_new = ("places.",)

    encoder: VisionTower
    places: nn.Embedding | None

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        blind: bool = False,
        shown_answers: int = 8,
        **training: Any,
    ) -> None:
        super().__init__(language_model, projector=projector, **training)
        if shown_answers < 0:
            raise ValueError(f"model.init_args.shown_answers is a number of samples, 0 for none; got {shown_answers}")
        self.vision_tower_settings, self.blind, self.shown_answers = vision_tower, blind, shown_answers

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

    def feature_flops(self, examples: Examples) -> int:
        return len(examples.modality.pixels) * self._flops_of_a_view

    @cached_property
    def _flops_of_a_view(self) -> int:
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

    # -- what can be looked at ---------------------------------------------------------------------------------------

    def show(self, answers: list[Answer]) -> None:
        """Into TensorBoard: one image of all the answers with their pictures, and the same as text."""
        data = self.data
        sheet = [
            ShownAnswer(
                f"{sample} {data.kind(sample)}".strip(), data.images(sample), data.question(sample),
                data.right_answer(sample), text, blind, data.is_right(sample, text),
            )
            for sample, text, blind in answers
        ]  # fmt: skip
        for logger in self.loggers:
            if sheet and isinstance(logger, TensorBoardLogger):
                step = self.global_step
                logger.experiment.add_image("val/answers", answer_sheet.draw(sheet), step, dataformats="HWC")
                logger.experiment.add_text("val/answers", answer_sheet.text(sheet), step)

    def report(self, answers: list[Answer]) -> None:
        self.data.write_prediction_report(self.trainer.default_root_dir, answers)

    # -- other forms -------------------------------------------------------------------------------------------------

    @property
    def own_networks(self) -> dict[str, nn.Module]:
        return {**super().own_networks, **({} if self.places is None else {"places": self.places})}

    def export(self, folder: Path, merge: bool) -> None:
        """Writes a LlavaForConditionalGeneration of transformers where the parts allow it, else the parts."""
        tokenizer = self.data.tokenizer
        parts = llava_export.Parts(
            self.encoder, self.projector, self.language_model, self.image_layout, tokenizer.placeholder, self.data.fit
        )
        obstacles = llava_export.obstacles(parts, merge)
        if obstacles:
            log.info("as parts, not as a LlavaForConditionalGeneration of transformers: %s", "; ".join(obstacles))
            super().export(folder, merge)
            return
        log.info("as a LlavaForConditionalGeneration of transformers")
        answering = llava_export.Answering(tokenizer.end_of_turn, tokenizer.pad, self.max_new_tokens)
        with new_directory(folder) as new:
            llava_export.write(parts, new, self.data.exported_tokenizer(), answering)
