"""Base of the modules whose language model reads another modality.

    batch -> encoder -> projector -> features in place of placeholders -> language model -> hidden states

A family chooses two components, a ModalityFeatures and an Evaluator, and overrides little else.
"""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from datamodules.multimodal.batch import Examples, Prompts, Rows
from datamodules.multimodal.interface import ComposedDataT
from engine.base_options import TrainingOptions, Unpack
from engine.export.artifacts import ExportedModel
from engine.number_check import check_numbers
from engine.optim.global_loss_mean import LossSum
from engine.strategies.fsdp import has_sharded_weights, is_fsdp
from lightning_modules.multimodal.checkpoints.base_model_id import (
    base_identity,
    check_base,
    folder_of,
    weights_identity,
)
from lightning_modules.multimodal.checkpoints.stage_init import Origin, base_was_trained, load_stage, read_stage
from lightning_modules.multimodal.connector.merge_embeddings import Features, merge_features_into_embeddings
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.evaluation.evaluated_module import EvaluatedModule
from lightning_modules.multimodal.evaluation.evaluator import Evaluator
from lightning_modules.multimodal.export.parts import export_parts
from lightning_modules.multimodal.flops import LanguageModelFlops, chat_amounts, language_model_flops, trains
from lightning_modules.multimodal.language.config import LanguageModelSettings
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import Precision, device_has_bf16, precision_of
from lightning_modules.multimodal.language.prefix_cache import PrefixCache
from lightning_modules.multimodal.language.tokenizer_check import require_own_tokens
from lightning_modules.multimodal.modality import FeatureNetworks, ModalityFeatures
from lightning_modules.multimodal.parameter_groups import parameter_groups, parameter_table

log = logging.getLogger("lockstep")


class MultimodalOptions(TrainingOptions, total=False):
    """Options that every family passes on to MultimodalModule, which describes them."""

    learning_rates: dict[str, float] | None
    init_from: str | None


class MultimodalModule(EvaluatedModule[ComposedDataT]):
    """A language model that reads features of another modality, and learns what the assistant answers in chats.

    Args:
        modality: computes the features.
        language_model: the language model that reads the features.
        projector: maps the encoder's features to the language model's embeddings.
        learning_rates: peak rates of the parts (the encoder's name, projector, language_model) whose rate differs from
            `learning_rate`.
        init_from: source of the initial weights of a fit: a checkpoint, a run (its name or folder: its best checkpoint,
            else its last) or a config (its newest run). Only weights are read. A resumed fit does not need it.
        training: see LockstepModule.
    """

    extra = "language"
    terms_per_sample = 32  # tokens of an answer

    encoder: nn.Module
    projector: Projector
    language_model: LanguageModel
    places: nn.Embedding | None

    def __init__(
        self,
        modality: ModalityFeatures[Any],
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        learning_rates: dict[str, float] | None = None,
        init_from: str | None = None,
        **training: Unpack[TrainingOptions],
    ) -> None:
        super().__init__(**training)
        check_numbers("model.init_args.learning_rates.", learning_rates or {}, at_least=0)
        self.modality = modality
        self.language_model_settings = language_model
        self.projector_settings = projector or ProjectorSettings()
        self.learning_rates = learning_rates or {}
        self.language_model_settings.check()
        self.projector_settings.check()
        self.init_from = init_from
        self.optional_weights = modality.optional_weights
        self.base_was_trained = False

    @abstractmethod
    def build_evaluation(self) -> Evaluator[Any]:
        """Return the component that evaluates this module."""

    @override
    def memory_saving_options(self) -> list[tuple[str, str]]:
        if self.language_model_settings.activation_checkpointing:
            return []
        return [("--model.init_args.language_model.activation_checkpointing true", "a third more time")]

    # -- building ----------------------------------------------------------------------------------------------------

    @override
    def configure_model(self) -> None:
        if hasattr(self, "encoder"):  # Lightning calls this hook for each of fit, validate and test
            return
        self.build()
        if self.init_from is not None and self.trainer.state.fn == "fit" and self.trainer.ckpt_path is None:
            self._load_stage(Path(self.init_from))

    def build(self) -> None:
        """Build the networks. A family with further networks extends it.

        The order is fixed, because one random stream makes all initial weights.
        """
        tokenizer = self.data.tokenizer
        self.encoder = self.modality.build_encoder(self.data, self.model_precision)
        settings = self.language_model_settings
        device = self.trainer.strategy.root_device
        require_whole_weights(settings, self.trainer.strategy)
        self.language_model = LanguageModel(settings, tokenizer.vocabulary_size, self.model_precision, device)
        if settings.path is not None:
            vocabulary = tokenizer.tokenizer.get_vocab()
            require_own_tokens(settings.path, folder_of(settings.path), self.data.tokenizer_source, vocabulary)
        output_size = self.encoder.output_size
        assert isinstance(output_size, int), "see ModalityFeatures.build_encoder"
        self.projector = Projector(self.projector_settings, output_size, self.language_model.hidden_size)
        self.evaluation = self.build_evaluation()
        self.places = self.modality.build_places(self.data, self.language_model.hidden_size)

    def _load_stage(self, path: Path) -> None:
        checkpoint = read_stage(path)
        self.frozen_weights.record(self)  # weights that an earlier stage trained must be saved, even if frozen here
        load_stage(self, path, checkpoint, self._origins(checkpoint), self.optional_weights)

    def _origins(self, checkpoint: Mapping[str, Any]) -> dict[str, Origin]:
        saved, settings = checkpoint.get("base") or {}, self.language_model_settings
        lora = ("lora",) if saved.get("lora") and self.base["lora"] else ()
        weights = partial(weights_identity, settings.path)
        language_model = Origin(saved, self.base, ("architecture", "tokenizer", *lora), weights)
        return {"language_model": language_model, **self.modality.origins(checkpoint)}

    @property
    def model_precision(self) -> Precision:
        """Number formats of pretrained weights and of the computations with them."""
        has_bf16 = device_has_bf16(self.trainer.strategy.root_device)
        return precision_of(self.trainer.precision, has_bf16, is_fsdp(self.trainer.strategy))

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The networks by their names in `learning_rates`; together they hold all trainable weights."""
        projector = nn.ModuleList([self.projector] if self.places is None else [self.projector, self.places])
        return {self.modality.encoder_part: self.encoder, "projector": projector, "language_model": self.language_model}

    @override
    def optimizer_groups(self) -> list[dict[str, Any]]:
        rates = {part: self.learning_rates.get(part, self.learning_rate) for part in self.parts}
        unknown = self.learning_rates.keys() - self.parts.keys()
        if unknown:
            raise ValueError(f"model.learning_rates names {sorted(unknown)}; the parts are {list(self.parts)}")
        return parameter_groups(self.parts, rates, self.weight_decay, module=self)

    @override
    def hidden_matrices(self) -> set[Tensor]:
        return super().hidden_matrices() - {self.language_model.causal_lm.get_output_embeddings().weight}

    @override
    def on_fit_start(self) -> None:
        super().on_fit_start()
        log.info("%s", parameter_table(self.parts, self._configured))

    @property
    def sharded(self) -> bool:
        """Whether ranks share the weights, so that all must run the same number of forward passes."""
        return has_sharded_weights(self.trainer.strategy)

    # -- forward passes ----------------------------------------------------------------------------------------------

    @property
    def feature_networks(self) -> FeatureNetworks:
        """Networks of the features, as the strategy wraps them."""
        return FeatureNetworks(self.encoder, self.projector, self.places)

    def features(self, modality: Any) -> Features:
        """Return the features that replace the placeholders of the samples' chats."""
        return self.modality.compute(self.feature_networks, modality)

    def embed(self, chats: Rows | Prompts, features: Features) -> Tensor:
        """Return embeddings [R, L, C] of chats and their features."""
        embeddings = self.language_model.embed(chats.tokens)
        return merge_features_into_embeddings(embeddings, chats, *features, self.data.tokenizer.placeholder)

    def states(self, rows: Rows, features: Features) -> Tensor:
        """Return the language model's hidden states [R, L, C] of chats and their features."""
        return self.language_model.hidden_states(self.embed(rows, features), rows.positions)

    def generate(self, prompts: Prompts, features: Features, max_new_tokens: int) -> list[str]:
        """Return the most likely answer to each prompt, at most `max_new_tokens` long."""
        embeddings, end = self.embed(prompts, features), [self.data.tokenizer.end_of_turn]
        answers = self.language_model.generate(embeddings, prompts.mask, max_new_tokens, end, self.sharded)
        return [self.data.tokenizer.decode(answer) for answer in answers]

    def stream(self, prompts: Prompts, features: Features, max_new_tokens: int) -> Iterator[str]:
        """Yield the answer of `generate` to one prompt so far, after each token."""
        cache = PrefixCache(self.language_model, self.embed(prompts, features), prompts.mask)
        for tokens in cache.stream(0, max_new_tokens, [self.data.tokenizer.end_of_turn]):
            yield self.data.tokenizer.decode(tokens)

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def training_loss(self, batch: Any) -> LossSum:
        """Return the loss of a micro-batch, a sequence of Examples of similar length."""
        losses = [self.part_loss(part) for part in batch]
        total, count = (torch.stack(values).sum() for values in zip(*losses, strict=True))
        return LossSum(total, count)

    def part_loss(self, part: Examples) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss terms of a part of a micro-batch, and their number."""
        states = self.states(part.rows, self.features(part.modality))
        return self.language_model.loss(states, part.rows.labels)

    @override
    def throughput_counts(self, batch: Any) -> dict[str, float]:
        return chat_amounts(batch, self.modality.token_metric, self._flops)

    @cached_property
    def _language_model_flops(self) -> LanguageModelFlops | None:
        before = (part for name, part in self.parts.items() if name != "language_model")
        return language_model_flops(self.language_model.causal_lm, behind_trained=any(map(trains, before)))

    def _flops(self, examples: Examples) -> int | None:
        features = self.modality.flops(self.feature_networks, examples)
        if features is None or self._language_model_flops is None:
            return None
        apart = self.language_model_settings.attention == "flash_attention_2"
        return features + self._language_model_flops.of(examples.rows, apart)

    # -- checkpoints and exports -------------------------------------------------------------------------------------

    @cached_property
    def base(self) -> dict[str, Any]:
        """Identity of the language model, as stored in checkpoints."""
        return base_identity(self.language_model_settings, self.data.tokenizer.identity)

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint.update({"base": self.base, **self.modality.identity()})

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.modality.check_identity(checkpoint)
        check_base(checkpoint.get("base"), self.base)
        if self.trainer.state.fn is None:  # an export
            self.base_was_trained = base_was_trained(self, checkpoint)
        super().on_load_checkpoint(checkpoint)

    @override
    def export(self, folder: Path, merge: bool) -> ExportedModel:
        return export_parts(self, folder, merge)

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Source of the pretrained weights of each part. None: random initial weights."""
        return {**self.modality.pretrained, "language_model": self.language_model_settings.path}

    def export_networks(self) -> dict[str, nn.Module]:
        """Return the networks to export beside the language model, by name."""
        places = {} if self.places is None else {"places": self.places}
        return {"encoder": self.encoder, "projector": self.projector, **places}

    def export_settings(self) -> dict[str, Any]:
        """Return the settings of further networks for an export, as numbers, strings and lists."""
        return {}


def require_whole_weights(settings: LanguageModelSettings, strategy: object) -> None:
    """Raise ValueError if a strategy would shard quantized weights."""
    if settings.quantize != "none" and has_sharded_weights(strategy):
        raise ValueError(
            f"language_model.quantize is {settings.quantize}, but {type(strategy).__name__} shards weights of one "
            "number format together. Use --trainer.strategy ddp: quantized weights take a quarter (nf4) or half (int8) "
            "of the memory; or set language_model.quantize none"
        )
