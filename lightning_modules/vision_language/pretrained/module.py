"""LightningModule that fine-tunes a pretrained image-text model."""

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from typing_extensions import override

from datamodules.multimodal.batch import IGNORE, Examples, Prompts, Rows
from datamodules.vision_language.interface import ProcessedChatData, ProcessorSource
from engine.base_options import TrainingOptions, Unpack
from engine.export.artifacts import ExportedModel
from engine.number_check import check_numbers
from engine.optim.global_loss_mean import LossSum
from engine.strategies.fsdp import is_fsdp
from lightning_modules.multimodal.checkpoints.base_model_id import (
    base_identity,
    check_base,
    weights_identity,
)
from lightning_modules.multimodal.checkpoints.stage_init import Origin, base_was_trained, load_stage, read_stage
from lightning_modules.multimodal.evaluation.evaluated_module import EvaluatedModule
from lightning_modules.multimodal.evaluation.generative_evaluation import GenerativeEvaluation, check_max_new_tokens
from lightning_modules.multimodal.evaluation.outcome_metric import widest_float
from lightning_modules.multimodal.flops import chat_amounts
from lightning_modules.multimodal.language.config import LanguageModelSettings
from lightning_modules.multimodal.language.precision import Precision, device_has_bf16, precision_of
from lightning_modules.multimodal.parameter_groups import parameter_groups, parameter_table
from lightning_modules.vision_language.pretrained.classes import class_of
from lightning_modules.vision_language.pretrained.export import export_image_text
from lightning_modules.vision_language.pretrained.image_inputs import BlackImages
from lightning_modules.vision_language.pretrained.loading import download, load_config, load_image_text_model
from lightning_modules.vision_language.pretrained.network import ImageInputs, ImageTextNetwork
from lightning_modules.vision_language.pretrained.settings import PartSettings, tuned

if TYPE_CHECKING:
    from transformers import PretrainedConfig

log = logging.getLogger("lockstep")


class PretrainedVisionLanguageModel(EvaluatedModule[ProcessedChatData]):
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
        learning_rates: peak rates of the parts (vision_tower, connector, language_model) whose rate differs from
            `learning_rate`.
        init_from: source of the initial weights of a fit: a checkpoint, a run or a config, see MultimodalModule.
        training: see LockstepModule.
    """

    extra = "language"
    terms_per_sample = 32  # tokens of an answer

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
        learning_rates: dict[str, float] | None = None,
        init_from: str | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        super().__init__(**training)
        check_numbers("model.init_args.learning_rates.", learning_rates or {}, at_least=0)
        self.path = path
        self.language_model_settings = tuned(language_model or LanguageModelSettings(), path)
        self.part_settings = {"vision_tower": vision_tower or PartSettings(), "connector": connector or PartSettings()}
        self.image_settings = image_processor or {}
        self.blind, self.max_new_tokens = blind, check_max_new_tokens(max_new_tokens)
        self.learning_rates, self.init_from = learning_rates or {}, init_from
        self.base_was_trained = False

    @override
    def memory_saving_options(self) -> list[tuple[str, str]]:
        if self.language_model_settings.activation_checkpointing:
            return []
        return [("--model.init_args.language_model.activation_checkpointing true", "a third more time")]

    # -- building ----------------------------------------------------------------------------------------------------

    @cached_property
    def config(self) -> "PretrainedConfig":
        """Config of the model."""
        return load_config(self.path)

    @cached_property
    def processor_source(self) -> ProcessorSource:
        """The processor that the data use."""
        unpacked = class_of(self.path, self.config).unpacked
        return ProcessorSource(self.path, download(self.path), self.image_settings, unpacked)

    @override
    def configure_model(self) -> None:
        if hasattr(self, "language_model"):  # Lightning calls this hook for each of fit, validate and test
            return
        if is_fsdp(self.trainer.strategy):
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
        if self.init_from is not None and self.trainer.state.fn == "fit" and self.trainer.ckpt_path is None:
            self._load_stage(Path(self.init_from))

    def _load_stage(self, path: Path) -> None:
        checkpoint = read_stage(path)
        self.frozen_weights.record(self)  # weights that an earlier stage trained must be saved, even if frozen here
        saved = checkpoint.get("base") or {}
        lora = ("lora",) if saved.get("lora") and self.base["lora"] else ()
        alike = ("architecture", "tokenizer", *lora)
        origin = Origin(saved, self.base, alike, lambda: weights_identity(self.path))
        load_stage(self, path, checkpoint, {"language_model": origin}, ())

    @property
    def model_precision(self) -> Precision:
        """Number formats of pretrained weights and of the computations with them."""
        has_bf16 = device_has_bf16(self.trainer.strategy.root_device)
        return precision_of(self.trainer.precision, has_bf16)

    @override
    def optimizer_groups(self) -> list[dict[str, Any]]:
        parts = self.language_model.part_weights
        unknown = self.learning_rates.keys() - parts.keys()
        if unknown:
            raise ValueError(f"model.learning_rates names {sorted(unknown)}; the parts are {list(parts)}")
        rates = {part: self.learning_rates.get(part, self.learning_rate) for part in parts}
        return parameter_groups(parts, rates, self.weight_decay, module=self)

    @override
    def hidden_matrices(self) -> set[Tensor]:
        return super().hidden_matrices() - {self.language_model.causal_lm.get_output_embeddings().weight}

    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        log.info("%s", parameter_table(self.language_model.part_weights, self._configured))

    # -- forward passes ----------------------------------------------------------------------------------------------

    def features(self, modality: ImageInputs) -> ImageInputs:
        """Return the images that the model reads: black ones for a blind model."""
        return self.modality.blinded(modality) if self.blind else modality

    def states(self, rows: Rows, features: ImageInputs) -> Tensor:
        """Return the language model's hidden states [R, L, C] of chats and their images."""
        return self.language_model.row_states(rows, features)

    def generate(self, prompts: Prompts, features: ImageInputs, max_new_tokens: int) -> list[str]:
        """Return the most likely answer to each prompt, at most `max_new_tokens` long."""
        processor = self.data.model_processor
        tokens = self.language_model.answer(prompts, features, max_new_tokens, processor.ends, processor.pad)
        return [processor.decode(answer) for answer in tokens.tolist()]

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def training_loss(self, batch: Any) -> LossSum:
        """Return the loss of a micro-batch, a sequence of Examples of similar length."""
        losses = [self._part_loss(part) for part in batch]
        total, count = (torch.stack(values).sum() for values in zip(*losses, strict=True))
        if not any(part.modality for part in batch) and self._reads_with_trained_weights:
            total = total + self._loss_without_weight()
        return LossSum(total, count)

    def _part_loss(self, part: Examples) -> tuple[Tensor, Tensor]:
        states = self.states(part.rows, self.features(part.modality))
        return self.language_model.loss(states, part.rows.labels)

    @cached_property
    def _reads_with_trained_weights(self) -> bool:
        weights = self.language_model.part_weights
        return any(weight.requires_grad for part in self.part_settings for weight in weights[part])

    def _loss_without_weight(self) -> Tensor:
        """Return zero, computed from a black image: other ranks wait for the gradient of every weight."""
        chat, images = self.data.black_image
        tokens = torch.from_numpy(chat.tokens)[None].to(self.device)
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        none = torch.zeros(0, dtype=torch.int64, device=self.device)
        rows = Rows(tokens, torch.full_like(tokens, IGNORE), positions, none, none)
        states = self.states(rows, {name: array.to(self.device) for name, array in images.items()})
        return states.float().sum() * 0

    @override
    def throughput_counts(self, batch: Any) -> dict[str, float]:
        return chat_amounts(batch, "image_tokens", lambda part: None)

    # -- checkpoints and exports -------------------------------------------------------------------------------------

    @cached_property
    def base(self) -> dict[str, Any]:
        """Identity of the model and its processor, as stored in checkpoints."""
        return base_identity(self.language_model_settings, self.data.model_processor.identity)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["base"] = self.base

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_base(checkpoint.get("base"), self.base)
        if self.trainer.state.fn is None:  # an export
            self.base_was_trained = base_was_trained(self, checkpoint)
        super().on_load_checkpoint(checkpoint)

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
        return export_image_text(self.language_model, self.data.model_processor, folder, merge, trained)
