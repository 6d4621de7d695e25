"""Fine-tunes a pretrained image-text model: the LightningModule for LLaVA, Qwen2.5-VL and others."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from datamodules.multimodal.batch import IGNORE, Prompts, TokenRows
from datamodules.vision_language.interface import ProcessedChatData, ProcessorSource
from engine.base_options import Unpack
from engine.export.artifacts import ExportedModel
from engine.optim.global_loss_mean import LossSum
from engine.strategies.fsdp import has_sharded_weights
from lightning_modules.multimodal.evaluation.generative_evaluation import GenerativeEvaluation, check_max_new_tokens
from lightning_modules.multimodal.evaluation.outcome_metric import widest_float
from lightning_modules.multimodal.export.load_export import has_adapters, load_adapters
from lightning_modules.multimodal.flops import chat_throughput_counts
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModule, LanguageModuleOptions
from lightning_modules.vision_language.pretrained.black_images import BlackImages
from lightning_modules.vision_language.pretrained.export import export_pretrained_model
from lightning_modules.vision_language.pretrained.image_text_classes import find_image_text_class
from lightning_modules.vision_language.pretrained.image_text_model_loading import (
    download_model,
    load_config,
    load_image_text_model,
)
from lightning_modules.vision_language.pretrained.image_text_network import ImageInputs, ImageTextNetwork
from lightning_modules.vision_language.pretrained.settings import PartSettings, language_model_settings

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class PretrainedVisionLanguageModel(LanguageModule[ProcessedChatData]):
    """Fine-tunes an image-text model of transformers, with its own processor and chat template.

    Args:
        path: directory or name on the Hugging Face hub of the model: LLaVA 1.5, LLaVA-NeXT, LLaVA-OneVision, Qwen2-VL,
            Qwen2.5-VL, Qwen3-VL, InternVL, Idefics3, SmolVLM, PaliGemma or Gemma 3.
        language_model: what trains of its language model, and how; without `path` and `config`.
        vision_tower: what trains of its vision tower.
        connector: what trains between vision tower and language model.
        image_processor: settings of its image processor that differ from its files, such as
            {size: {shortest_edge: 3136, longest_edge: 501760}}.
        blind: train and evaluate on black images, as a baseline.
        max_new_tokens: maximum length of an answer that an evaluation generates.
        training: see LanguageModule and LockstepModule; the parts in `learning_rates` are vision_tower, connector and
            language_model.
    """

    language_model: ImageTextNetwork
    modality: BlackImages

    def __init__(
        self,
        path: str,
        language_model: LanguageModelSettings | None = None,
        vision_tower: PartSettings | None = None,
        connector: PartSettings | None = None,
        image_processor: dict[str, Any] | None = None,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model_settings(language_model or LanguageModelSettings(), path), **training)
        self.path = path
        self.part_settings = {"vision_tower": vision_tower or PartSettings(), "connector": connector or PartSettings()}
        self.image_settings = image_processor or {}
        self.blind, self.max_new_tokens = blind, check_max_new_tokens(max_new_tokens)

    # -- building ----------------------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> "PretrainedConfig":
        """Config of the model."""
        return load_config(self.path)

    @cached_property
    def processor_source(self) -> ProcessorSource:
        """Files and settings from which the data build the processor of transformers."""
        obstacle = find_image_text_class(self.path, self.config).packing_obstacle
        return ProcessorSource(self.path, download_model(self.path), self.image_settings, obstacle)

    @override
    def build(self) -> None:
        if has_sharded_weights(self.trainer.strategy):
            raise ValueError(
                "FSDP does not shard a pretrained image-text model; use --trainer.strategy ddp, which trains adapters "
                "(model.init_args.language_model.trainable lora) with a copy of the frozen weights on each GPU"
            )
        settings, precision = self.language_model_settings, self.model_precision
        parts_train = any(part.trainable != "none" for part in self.part_settings.values())
        network = load_image_text_model(self.config, settings, precision, parts_train)
        vocabulary = len(self.data.model_processor.processor.tokenizer)
        device = self.trainer.strategy.root_device
        self.language_model = ImageTextNetwork(network, settings, self.part_settings, vocabulary, precision, device)
        self.modality = BlackImages(self.data.model_processor.black)
        self.evaluation = GenerativeEvaluation(self.data, widest_float(device), self.max_new_tokens)

    @property
    @override
    def parts(self) -> dict[str, nn.ParameterList]:
        return self.language_model.part_weights

    # -- forward passes ----------------------------------------------------------------------------------------------

    @override
    def features(self, inputs: ImageInputs) -> ImageInputs:
        """Return the images that the model reads: black images for a blind model."""
        return self.modality.blinded(inputs) if self.blind else inputs

    @override
    def states(self, rows: TokenRows, features: ImageInputs) -> Tensor:
        return self.language_model.row_states(rows, features)

    @override
    def generate(self, prompts: Prompts, features: ImageInputs, max_new_tokens: int) -> list[str]:
        processor = self.data.model_processor
        tokens = self.language_model.answer(prompts, features, max_new_tokens, processor.ends, processor.pad)
        return [processor.decode(answer) for answer in tokens.tolist()]

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def training_loss(self, batch: Any) -> LossSum:
        """Return the loss of a micro-batch, a sequence of ChatTrainBatch, each of chats of similar length."""
        loss = super().training_loss(batch)
        # A rank without an image has no gradients of tower and connector, for which DDP would wait.
        if any(part.encoder_input for part in batch) or not self._reads_with_trained_weights:
            return loss
        return loss._replace(total=loss.total + self._loss_without_weight())

    @cached_property
    def _reads_with_trained_weights(self) -> bool:
        return any(weight.requires_grad for part in self.part_settings for weight in self.parts[part])

    def _loss_without_weight(self) -> Tensor:
        """Return zero, computed from a black image: other ranks wait for the gradient of every weight."""
        chat, images = self.data.black_image
        tokens = torch.from_numpy(chat.tokens)[None].to(self.device)  # [1, L]
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        rows = TokenRows(tokens, torch.full_like(tokens, IGNORE), positions, none, none)
        states = self.states(rows, {name: array.to(self.device) for name, array in images.items()})
        # The product is float32: an overflow to infinity times 0 would be NaN.
        return states.float().sum() * 0

    @override
    def throughput_counts(self, batch: Any) -> dict[str, float]:
        return chat_throughput_counts(batch, "image_tokens", lambda part: None)

    # -- checkpoints and exports -------------------------------------------------------------------------------------

    @property
    @override
    def tokenizer_identity(self) -> str:
        return self.data.model_processor.identity

    @override
    def export(self, folder: Path, merge: bool) -> ExportedModel:
        """Write the model in its own class with its processor, or its adapters alone.

        Raises:
            ValueError: adapters would be exported without the weights that they were trained with.
        """
        if self.base_was_trained and not merge and self.language_model_settings.trainable == "lora":
            raise ValueError(
                f"an earlier stage trained weights of {self.path}, so the adapters of this run do not fit its files: "
                "export the whole model with --merge"
            )
        trained = [name for name, part in self.part_settings.items() if part.trainable != "none"]
        return export_pretrained_model(self.language_model, self.data.model_processor, folder, merge, trained)

    @override
    def load_export(self, folder: Path) -> None:
        if has_adapters(folder):
            load_adapters(self.language_model, folder)
            return
        path = str(folder)
        settings = replace(self.language_model_settings, path=path, trainable="none", quantize="none", compile=False)
        network = load_image_text_model(load_config(path), settings, self.model_precision, parts_train=False)
        vocabulary = self.language_model.vocabulary
        self.language_model = ImageTextNetwork(network, settings, {}, vocabulary, self.model_precision)
