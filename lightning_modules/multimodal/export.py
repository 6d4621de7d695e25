"""Writes a trained model as a directory that transformers and peft load without this project.

    DIR/                             the language model, or adapters to it, and its tokenizer
    DIR/modality/encoder.safetensors     } what makes embeddings of the other modality
    DIR/modality/projector.safetensors   }
    DIR/modality/settings.json           how to build them, where they go, and on which language model
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from engine.durable_file import remove
from lightning_modules.multimodal.language_model import LanguageModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

log = logging.getLogger("lockstep")

MODALITY = "modality"


def export(
    folder: Path,
    language_model: LanguageModel,
    tokenizer: "PreTrainedTokenizerFast",
    end_of_turn: int,
    networks: Mapping[str, nn.Module],
    settings: Mapping[str, Any],
    merge: bool = False,
) -> None:
    """Uses the language model up: its adapters are merged, its weights get one format.

    What is written of the language model: adapters, without the model that they belong to, if it trained with adapters;
    nothing but its tokenizer if it is frozen; otherwise all of it.

    Args:
        folder: is there, and empty.
        end_of_turn: the token that ends an answer, for `generate` of transformers.
        networks: encoder and projector by name.
        settings: how they are built, for the JSON.
        merge: write the whole language model in any case, with the adapters merged into its weights.

    Raises:
        ValueError: the adapters are of no use without the language model, which has no files.
    """
    from safetensors.torch import save_model

    _require_base(language_model, merge)
    without_progress_bars()
    (folder / MODALITY).mkdir()
    _write_language_model(language_model, folder, end_of_turn, merge)
    tokenizer.save_pretrained(folder)
    for name, network in networks.items():
        save_model(network, str(folder / MODALITY / f"{name}.safetensors"))
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / MODALITY / "settings.json").write_text(text + "\n", encoding="utf-8")


def without_progress_bars() -> None:
    """Of transformers, while it writes files."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def _write_language_model(language_model: LanguageModel, folder: Path, end_of_turn: int, merge: bool) -> None:
    trainable = language_model.settings.trainable
    if trainable == "lora" and not merge:
        # peft would ask the hub whether the vocabulary was widened; new tokens are not trained anyway.
        language_model.network.save_pretrained(str(folder), save_embedding_layers=False)
        remove(folder / "README.md")  # an empty form
        return
    if trainable == "none" and not merge:
        return
    network: PreTrainedModel = language_model.causal
    if trainable == "lora":
        network = language_model.network.merge_and_unload()
    elif trainable == "last_n_layers":
        network.to(language_model.precision.trained)  # one format: transformers reads all weights in one
    network.generation_config.eos_token_id = end_of_turn
    network.save_pretrained(str(folder))


def _require_base(language_model: LanguageModel, merge: bool) -> None:
    settings = language_model.settings
    if merge or settings.trainable not in ("none", "lora"):
        return
    advice = "export the whole model with --merge"
    if settings.path is None:
        raise ValueError(f"the language model has no files of its own that the adapters could be put on: {advice}")
    if language_model.widened:
        log.warning(
            "WARNING: the tokenizer's last %d tokens are not in %s. The placeholder needs no embedding; if there are "
            "others that chats have, %s",
            language_model.widened, settings.path, advice,
        )  # fmt: skip
