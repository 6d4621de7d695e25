"""Trains a language model that reads another modality: the base of such LightningModules.

    batch -> encoder -> projector -> features in place of placeholders -> language model -> hidden states

A family chooses two components, a ModalityFeatures and an Evaluator, and overrides little else.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from typing_extensions import override

from datamodules.multimodal.batch import ChatTrainBatch, Prompts, TokenRows
from datamodules.multimodal.interface import ChatDataT
from engine.base_options import Unpack
from engine.export.artifacts import ExportedModel
from engine.strategies.fsdp import has_sharded_weights
from lightning_modules.multimodal.checkpoints.base_model_identity import folder_of
from lightning_modules.multimodal.checkpoints.stage_init import WeightOrigin
from lightning_modules.multimodal.connector.merge_embeddings import Features, merge_features_into_embeddings
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.evaluation.evaluator import Evaluator
from lightning_modules.multimodal.export.load_export import load_parts
from lightning_modules.multimodal.export.parts_export import export_parts
from lightning_modules.multimodal.flops import (
    LanguageModelFlops,
    chat_throughput_counts,
    has_trainable_weights,
    language_model_flops,
)
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.prefix_cache import PrefixCache
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language.tokenizer_check import require_own_tokens
from lightning_modules.multimodal.language_module import LanguageModule, LanguageModuleOptions
from lightning_modules.multimodal.modality import FeatureNetworks, ModalityFeatures


class MultimodalModule(LanguageModule[ChatDataT]):
    """A language model that reads features of another modality, and learns what the assistant answers in chats.

    Args:
        modality: computes the features.
        language_model: the language model that reads the features.
        projector: maps the encoder's features to the language model's embeddings.
        training: see LanguageModule and LockstepModule.
    """

    modality: ModalityFeatures[Any]
    encoder: nn.Module
    projector: Projector
    places: nn.Embedding | None  # the view embeddings; checkpoints have this name

    def __init__(
        self,
        modality: ModalityFeatures[Any],
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model, **training)
        self.modality = modality
        self.projector_settings = projector or ProjectorSettings()
        self.projector_settings.check()
        self.optional_weights = modality.optional_weights

    @abstractmethod
    def build_evaluation(self) -> Evaluator[Any]:
        """Return the component that evaluates this module."""

    # -- building ----------------------------------------------------------------------------------------------------

    @override
    def build(self) -> None:
        """Build the networks. A family with further networks extends it.

        The order is fixed, because one random stream makes all initial weights.
        """
        tokenizer = self.data.tokenizer
        # Encoder, language model, projector, view embeddings: in another order a seed gives other weights.
        self.encoder = self.modality.build_encoder(self.data, self.model_precision)
        settings = self.language_model_settings
        device = self.trainer.strategy.root_device
        # Checked before the language model is built, which takes minutes.
        require_whole_weights(settings, self.trainer.strategy)
        self.language_model = LanguageModel(settings, tokenizer.vocabulary_size, self.model_precision, device)
        if settings.path is not None:
            vocabulary = tokenizer.tokenizer.get_vocab()
            # Checked after the model is built, when its files are on this machine.
            require_own_tokens(settings.path, folder_of(settings.path), self.data.tokenizer_source, vocabulary)
        output_size = self.encoder.output_size
        assert isinstance(output_size, int), "see ModalityFeatures.build_encoder"
        self.projector = Projector(self.projector_settings, output_size, self.language_model.hidden_size)
        self.evaluation = self.build_evaluation()
        self.places = self.modality.build_view_embeddings(self.data, self.language_model.hidden_size)

    @override
    def origins(self, checkpoint: Mapping[str, Any]) -> dict[str, WeightOrigin]:
        return {**super().origins(checkpoint), **self.modality.origins(checkpoint)}

    @property
    @override
    def parts(self) -> dict[str, nn.Module]:
        # View embeddings train at the projector's rate: both are new where encoder and language model are pretrained.
        projector = nn.ModuleList([self.projector] if self.places is None else [self.projector, self.places])
        return {self.modality.encoder_part: self.encoder, "projector": projector, "language_model": self.language_model}

    # -- forward passes ----------------------------------------------------------------------------------------------

    @property
    def feature_networks(self) -> FeatureNetworks:
        """Networks of the features, as the strategy wraps them."""
        return FeatureNetworks(self.encoder, self.projector, self.places)

    @override
    def features(self, inputs: Any) -> Features:
        """Return the features that replace the placeholders of the samples' chats."""
        return self.modality.compute(self.feature_networks, inputs)

    def embed(self, chats: TokenRows | Prompts, features: Features) -> Tensor:
        """Return embeddings [R, L, C] of chats and their features."""
        embeddings = self.language_model.embed(chats.tokens)  # [R, L, C]
        return merge_features_into_embeddings(embeddings, chats, *features, self.data.tokenizer.placeholder)

    @override
    def states(self, rows: TokenRows, features: Features) -> Tensor:
        return self.language_model.hidden_states(self.embed(rows, features), rows.positions)

    @override
    def generate(self, prompts: Prompts, features: Features, max_new_tokens: int) -> list[str]:
        embeddings, end = self.embed(prompts, features), [self.data.tokenizer.end_of_turn]
        # Under FSDP all ranks run the same number of steps, as each step gathers weights from all.
        answers = self.language_model.generate(embeddings, prompts.mask, max_new_tokens, end, self.sharded)
        return [self.data.tokenizer.decode(answer) for answer in answers]

    def stream(self, prompts: Prompts, features: Features, max_new_tokens: int) -> Iterator[str]:
        """Yield the answer of `generate` to one prompt so far, after each token."""
        cache = PrefixCache(self.language_model, self.embed(prompts, features), prompts.mask)
        for tokens in cache.stream(0, max_new_tokens, [self.data.tokenizer.end_of_turn]):
            yield self.data.tokenizer.decode(tokens)

    @override
    def throughput_counts(self, batch: Any) -> dict[str, float]:
        return chat_throughput_counts(batch, self.modality.token_metric, self._flops)

    @cached_property
    def _language_model_flops(self) -> LanguageModelFlops | None:
        # A frozen language model computes gradients of its inputs only if a part before it trains.
        before = (part for name, part in self.parts.items() if name != "language_model")
        return language_model_flops(
            self.language_model.causal_lm, behind_trained=any(map(has_trainable_weights, before))
        )

    def _flops(self, batch: ChatTrainBatch) -> int | None:
        features = self.modality.flops(self.feature_networks, batch)
        if features is None or self._language_model_flops is None:
            return None
        # Other kernels compute all pairs of a packed row and mask those between chats.
        apart = self.language_model_settings.attention in ("flash_attention_2", "flex_attention")
        return features + self._language_model_flops.total(batch.rows, apart)

    # -- checkpoints and exports -------------------------------------------------------------------------------------

    @property
    @override
    def tokenizer_identity(self) -> str:
        return self.data.tokenizer.identity

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint.update(self.modality.identity())

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.modality.check_identity(checkpoint)
        super().on_load_checkpoint(checkpoint)

    @override
    def export(self, folder: Path, merge: bool) -> ExportedModel:
        return export_parts(self, folder, merge)

    @override
    def load_export(self, folder: Path) -> None:
        load_parts(self, folder)

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Source of the pretrained weights of each part. None: random initial weights."""
        return {**self.modality.pretrained, "language_model": self.language_model_settings.path}

    def export_networks(self) -> dict[str, nn.Module]:
        """Return the networks to export beside the language model, by name."""
        view_embeddings = {} if self.places is None else {"places": self.places}
        return {"encoder": self.encoder, "projector": self.projector, **view_embeddings}

    def export_settings(self) -> dict[str, Any]:
        """Return the settings of further networks for an export, as numbers, strings and lists."""
        return {}


def require_whole_weights(settings: LanguageModelSettings, strategy: object) -> None:
    """Raise ValueError if a strategy would shard quantized weights."""
    if settings.quantize != "none" and has_sharded_weights(strategy):
        raise ValueError(
            f"model.init_args.language_model.quantize is {settings.quantize}, but {type(strategy).__name__} does not "
            "shard quantized weights. Use --trainer.strategy ddp: they take a quarter (nf4) or half (int8) "
            "of the memory; or set model.init_args.language_model.quantize none"
        )
