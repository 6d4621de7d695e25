"""Exports a trained model as a directory that transformers and peft load without this project.

DIR/                                 the language model, or adapters to it, and its tokenizer
DIR/modality/encoder.safetensors     networks that compute embeddings of the other modality
DIR/modality/projector.safetensors
DIR/modality/settings.json           their settings, their placeholder token, and the name of the language model
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn

from datamodules.multimodal.interface import ChatData
from engine.export.artifacts import ExportedModel
from engine.io.atomic_file import remove
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.model_card import base_model_licenses, parts_card
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.modality import ModalityFeatures

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

log = logging.getLogger("lockstep")

MODALITY = "modality"


class ModuleInParts(Protocol):
    """What `export_parts` needs of a module. MultimodalModule provides it."""

    language_model: LanguageModel
    language_model_settings: LanguageModelSettings
    projector_settings: ProjectorSettings
    projector: Projector
    encoder: nn.Module
    modality: ModalityFeatures[Any]
    base_was_trained: bool

    @property
    def data(self) -> ChatData:
        """The run's data."""

    @property
    def base(self) -> dict[str, Any]:
        """Identity of the language model."""

    @property
    def pretrained(self) -> dict[str, str | None]:
        """Source of the pretrained weights of each part."""

    def export_networks(self) -> dict[str, nn.Module]:
        """See MultimodalModule."""

    def export_settings(self) -> dict[str, Any]:
        """See MultimodalModule."""


def export_parts(module: ModuleInParts, folder: Path, merge: bool) -> ExportedModel:
    """Export a module: its language model as transformers stores it, and the networks of its modality.

    Args:
        module: trained module. Its language model cannot be used afterwards.
        folder: existing, empty directory.
        merge: write the whole language model, with the adapters merged into its weights.

    Raises:
        ValueError: adapters or features would be exported without the language model that they were trained with.
    """
    trainable = module.language_model_settings.trainable
    if module.base_was_trained and not merge and trainable in ("none", "lora"):
        raise ValueError(
            f"an earlier stage trained the language model, so the weights of this run do not fit the files of "
            f"{module.base['name']}: export the whole model with --merge"
        )
    tokenizer = module.data.tokenizer
    settings = {
        "language_model": {**module.base, "trainable": trainable},
        "placeholder": tokenizer.placeholder,
        "encoder": {"class": type(module.encoder).__name__, **module.modality.description(module.encoder, module.data)},
        "projector": {**asdict(module.projector_settings), "input_size": module.projector.input_size},
        **module.export_settings(),
    }
    end, networks = tokenizer.end_of_turn, module.export_networks()
    export(
        folder=folder,
        language_model=module.language_model,
        tokenizer=tokenizer.tokenizer,
        end_of_turn=end,
        networks=networks,
        settings=settings,
        merge=merge,
    )
    return parts_card(type(module).__name__, trainable, merge, settings, base_model_licenses(module.pretrained))


def export(
    folder: Path,
    language_model: LanguageModel,
    tokenizer: "PreTrainedTokenizerFast",
    end_of_turn: int,
    networks: Mapping[str, nn.Module],
    settings: Mapping[str, object],
    merge: bool = False,
) -> None:
    """Write the files. Adapters are merged and weights are cast in place, so the language model cannot be used again.

    A language model with adapters is written as the adapters only, a frozen language model as its tokenizer only, and
    any other completely.

    Args:
        folder: existing, empty directory.
        language_model: trained language model.
        tokenizer: tokenizer of the language model, with its chat template.
        end_of_turn: token that ends an answer, for `generate` of transformers.
        networks: encoder, projector and further networks by name.
        settings: content of settings.json.
        merge: write the whole language model, with the adapters merged into its weights.

    Raises:
        ValueError: the adapters would be written without the language model, which has no files of its own.
    """
    from safetensors.torch import save_model

    # Checked before anything is written or merged: afterwards the model would be lost for another try.
    _require_base(language_model, merge)
    without_progress_bars()
    (folder / MODALITY).mkdir()
    _write_language_model(language_model, folder, end_of_turn, merge)
    tokenizer.save_pretrained(folder)
    for name, network in networks.items():
        # `save_model` and not `save_file`: it stores tied weights once.
        save_model(network, str(folder / MODALITY / f"{name}.safetensors"))
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / MODALITY / "settings.json").write_text(text + "\n", encoding="utf-8")


def without_progress_bars() -> None:
    """Disable the progress bars of transformers."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def _write_language_model(language_model: LanguageModel, folder: Path, end_of_turn: int, merge: bool) -> None:
    trainable = language_model.settings.trainable
    if trainable == "lora" and not merge:
        # peft would query the hub to detect a widened vocabulary. New tokens are not trained in any case.
        language_model.adapted.save_pretrained(str(folder), save_embedding_layers=False)
        remove(folder / "README.md")  # a template without content
        return
    # Its weights are in the files that it was loaded from.
    if trainable == "none" and not merge:
        return
    network = language_model.merge()
    if trainable == "last_n_layers":
        # transformers reads all weights in one format.
        network.to(language_model.precision.trained)  # type: ignore[arg-type]  # Its decorator hides `self`.
    # A base model's generation config stops at the end-of-document token, which a chat never writes.
    network.generation_config.eos_token_id = end_of_turn
    network.save_pretrained(str(folder))


def _require_base(language_model: LanguageModel, merge: bool) -> None:
    settings = language_model.settings
    if merge or settings.trainable not in ("none", "lora"):
        return
    advice = "export the whole model with --merge"
    if settings.path is None:
        raise ValueError(f"the language model has random initial weights, so adapters alone cannot be loaded: {advice}")
    if language_model.widened:
        log.warning(
            "the tokenizer's last %d tokens are not in %s. The placeholder needs no embedding; if chats "
            "contain others, %s",
            language_model.widened, settings.path, advice,
        )  # fmt: skip
