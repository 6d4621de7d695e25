"""What a multimodal model is made of: how its parts are built, what they begin with, and how they are saved.

    batch -> encoder -> projector -> features in their placeholders -> language model -> states
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from datamodules.multimodal.batch import Prompts, Rows
from engine.exported import Exported
from engine.frozen_weights import frozen_fingerprints
from engine.module import LockstepModule
from engine.sharded_strategy import is_fsdp, weights_are_shared
from lightning_modules.multimodal.base_identity import base_identity, check_base, folder_of, weights_identity
from lightning_modules.multimodal.card import described_parts, licences
from lightning_modules.multimodal.earlier_stage import Origin, base_was_trained, read_stage, take_over
from lightning_modules.multimodal.export import export
from lightning_modules.multimodal.language_model import LanguageModel, LanguageModelSettings
from lightning_modules.multimodal.own_tokens import require_own_tokens
from lightning_modules.multimodal.parameter_groups import parameter_groups, parameter_table
from lightning_modules.multimodal.precision import Precision, device_has_bf16, precision_of
from lightning_modules.multimodal.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.splice import Features, splice

log = logging.getLogger("lockstep")


class ComposedModule(LockstepModule):
    """An encoder, a projector and a language model.

    Args:
        language_model: the language model that reads the features.
        projector: from the encoder's features to the language model's.
        learning_rates: peak rates of the parts encoder, projector and language_model that have another one than `learning_rate`.
        init_from: what a fit begins with the weights of, and nothing but the weights: a checkpoint, a run (its name or folder: its best checkpoint, else its last), or a config (its newest run). Not needed any more when the fit is resumed.
        training: see LockstepModule.
    """  # noqa: E501

    may_be_new: tuple[str, ...] = ()
    """Beginnings of the names of weights that an earlier stage need not have had."""

    encoder: nn.Module
    projector: Projector
    language_model: LanguageModel

    def __init__(
        self,
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        learning_rates: dict[str, float] | None = None,
        init_from: str | None = None,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        self.language_model_settings = language_model
        self.projector_settings = projector or ProjectorSettings()
        self.learning_rates = learning_rates or {}
        self.init_from = init_from
        self._base_has_changed = False

    @abstractmethod
    def build_encoder(self) -> nn.Module:
        """The network that makes features; it has an `output_size`."""

    @abstractmethod
    def feature_counts(self, modality: Any) -> Tensor:
        """[S] int64: how many features the projector makes of each sample."""

    @abstractmethod
    def blinded(self, modality: Any) -> Any:
        """The same samples with nothing in them, with as many features."""

    def encoder_description(self) -> dict[str, Any]:
        """Its settings, for an export: numbers, strings and lists alone."""
        return {}

    def memory_savers(self) -> list[tuple[str, str]]:
        if self.language_model_settings.activation_checkpointing:
            return []
        return [("--model.init_args.language_model.activation_checkpointing true", "a third more time")]

    # -- building ----------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        if hasattr(self, "encoder"):
            return
        self.build()
        if self.init_from is not None and self.trainer.state.fn == "fit" and self.trainer.ckpt_path is None:
            self._take_over(Path(self.init_from))

    def build(self) -> None:
        """Makes the networks. A family that has others overrides this and calls it."""
        tokenizer = self.data.tokenizer
        self.encoder = self.build_encoder()
        self.language_model = LanguageModel(self.language_model_settings, tokenizer.vocabulary_size, self.formats)
        path = self.language_model_settings.path
        if path is not None:
            require_own_tokens(path, folder_of(path), self.data.tokenizer_source, tokenizer.tokenizer.get_vocab())
        sizes = self.encoder.output_size, self.language_model.hidden_size
        self.projector = Projector(self.projector_settings, *sizes)

    def _take_over(self, path: Path) -> None:
        earlier = read_stage(path)
        if self._leaves_out_frozen():  # what is frozen and was trained earlier must be saved
            self._frozen_as_built = frozen_fingerprints(self)
        try:
            weights = take_over(self, earlier, self.origins(earlier), self.may_be_new)
        except ValueError as error:
            raise ValueError(f"model.init_args.init_from: {path} does not fit this model: {error}") from error
        log.info("begun with %d weights of %s (step %s)", len(weights.taken), path, earlier.get("global_step"))
        if weights.new:
            log.info("not in it, new here: %s", ", ".join(weights.new))

    def origins(self, earlier: Mapping[str, Any]) -> dict[str, Origin]:
        """What this model and that of a checkpoint are built from, by the beginnings of their weights' names."""
        saved, settings = earlier.get("base") or {}, self.language_model_settings
        alike = ["architecture", "tokenizer"]
        if saved.get("lora") and self.base["lora"]:
            alike.append("lora")
        weights = partial(weights_identity, settings.path)
        return {"language_model": Origin(saved, self.base, tuple(alike), weights)}

    @property
    def formats(self) -> Precision:
        """Of pretrained weights, and what is computed with them."""
        has_bf16 = device_has_bf16(self.trainer.strategy.root_device)
        return precision_of(self.trainer.precision, has_bf16, is_fsdp(self.trainer.strategy))

    @property
    def parts(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "projector": self.projector, "language_model": self.language_model}

    def optimizer_groups(self) -> list[dict[str, Any]]:
        rates = {part: self.learning_rates.get(part, self.learning_rate) for part in self.parts}
        unknown = self.learning_rates.keys() - self.parts.keys()
        if unknown:
            raise ValueError(f"model.learning_rates names {sorted(unknown)}; the parts are {list(self.parts)}")
        return parameter_groups(self.parts, rates, self.weight_decay, module=self)

    def hidden_matrices(self) -> set[nn.Parameter]:
        return super().hidden_matrices() - {self.language_model.causal.get_output_embeddings().weight}

    def on_fit_start(self) -> None:
        super().on_fit_start()
        log.info("%s", parameter_table(self.parts, self._configured))

    @property
    def in_step(self) -> bool:
        """Whether every process must compute as often as the others."""
        return weights_are_shared(self.trainer.strategy)

    # -- from a batch to states --------------------------------------------------------------------------------------

    def features(self, modality: Any) -> Features:
        """What stands in the placeholders of the samples' chats."""
        return Features(self.projector(self.encoder(modality)), self.feature_counts(modality))

    def _states(self, rows: Rows, features: Features) -> Tensor:
        """[R, L, C]."""
        return self.language_model.hidden_states(self._embed(rows, features), rows.positions)

    def _embed(self, chats: Rows | Prompts, features: Features) -> Tensor:
        """[R, L, C]."""
        embeddings = self.language_model.embed(chats.tokens)
        return splice(embeddings, chats, *features, self.data.tokenizer.placeholder)

    # -- checkpoints and other forms ---------------------------------------------------------------------------------

    @cached_property
    def base(self) -> dict[str, Any]:
        """What identifies the language model that this one is built on."""
        return base_identity(self.language_model_settings, self.data.tokenizer.identity)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["base"] = self.base

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        check_base(checkpoint.get("base"), self.base)
        if self.trainer.state.fn is None:  # an export
            self._base_has_changed = base_was_trained(self, checkpoint)
        super().on_load_checkpoint(checkpoint)

    def export(self, folder: Path, merge: bool) -> Exported:
        if self._base_has_changed and not merge and self.language_model_settings.trainable in ("none", "lora"):
            raise ValueError(
                f"the language model has been trained in an earlier stage, so what was trained since does not belong "
                f"to {self.base['name']} as its files have it: export the whole model with --merge"
            )
        tokenizer = self.data.tokenizer
        settings = {
            "language_model": {**self.base, "trainable": self.language_model_settings.trainable},
            "placeholder": tokenizer.placeholder,
            "encoder": {"class": type(self.encoder).__name__, **self.encoder_description()},
            "projector": {**asdict(self.projector_settings), "input_size": self.projector.input_size},
            **self.own_description(),
        }
        end = tokenizer.end_of_turn
        export(folder, self.language_model, tokenizer.tokenizer, end, self.own_networks, settings, merge)
        trainable = self.language_model_settings.trainable
        return described_parts(type(self).__name__, trainable, merge, settings, licences(self.pretrained))

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Where each part's weights come from, None where they began with random ones."""
        return {"language_model": self.language_model_settings.path}

    @property
    def own_networks(self) -> dict[str, nn.Module]:
        """What makes features, by name, for an export."""
        return {"encoder": self.encoder, "projector": self.projector}

    def own_description(self) -> dict[str, Any]:
        """Settings of further networks, for an export: numbers, strings and lists alone."""
        return {}
