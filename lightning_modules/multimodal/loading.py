"""Builds a causal language model of transformers as its settings say; transformers is imported when one is built."""

import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lightning_modules.multimodal.language_model_settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.output_scores import require_known_scores
from lightning_modules.multimodal.precision import Precision, set_dtypes
from lightning_modules.multimodal.pretrained import (
    config_of,
    few,
    read_pretrained,
    require_local_files,
    switch_off_dropout,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

log = logging.getLogger("lockstep")

_SECTION = "language_model"


def load_language_model(
    settings: LanguageModelSettings, vocabulary: int, precision: Precision
) -> tuple["PreTrainedModel", int]:
    """The model, in training mode, before it is decided what trains; and how many of the tokens were new to it.

    Weights are read in the format they are used in. Where only some layers train, all are read in the trained ones'
    format, so that these lose nothing, and the frozen ones are narrowed afterwards.

    Raises:
        ValueError: the config names what the model type does not have, there is no such model, or it alters its scores
            in a way that is not known.
    """
    from transformers import AutoModelForCausalLM

    config = _config(settings, vocabulary)
    if settings.trainable == "none":
        switch_off_dropout(config)
    dtype = precision.frozen if settings.trainable in ("none", "lora") else precision.trained
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": settings.attention}
    if settings.path is None:
        network = AutoModelForCausalLM.from_config(config, **options)
        _scale_embeddings(network, settings.embedding_scale)
    else:
        options.update(config=config, output_loading_info=True)
        network, found = read_pretrained(_SECTION, AutoModelForCausalLM, settings.path, **options)
        if found["missing_keys"]:  # transformers gives them random values
            raise ValueError(f"language_model.path: {settings.path} lacks {few(found['missing_keys'])}: is it whole?")
    require_known_scores(network)
    widened = _widen_vocabulary(network, vocabulary)
    # Pretrained models come in evaluation mode, in which transformers checkpoints no activations; Lightning leaves it.
    return network.train(), widened


def choose_trained(network: "PreTrainedModel", settings: LanguageModelSettings, precision: Precision) -> nn.Module:
    """Freezes what is not to train and sets formats; returns the model, under `lora` wrapped by peft.

    Raises:
        ValueError: the model has fewer layers than are to train, or none that an adapter could be put on.
    """
    network.requires_grad_(settings.trainable == "full")
    chosen: nn.Module = network
    if settings.trainable == "last_n_layers":
        layers = network.get_decoder().layers
        if settings.last_n_layers > len(layers):
            raise ValueError(
                f"language_model.last_n_layers is {settings.last_n_layers}, but the model has {len(layers)} layers"
            )
        layers[-settings.last_n_layers :].requires_grad_(True)
    elif settings.trainable == "lora":
        chosen = _with_adapters(network, settings.lora)
    set_dtypes(chosen, precision)
    if settings.activation_checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
    return chosen


def _config(settings: LanguageModelSettings, vocabulary: int) -> "PretrainedConfig":
    from transformers import AutoConfig

    if settings.path is not None:
        require_local_files(_SECTION, settings.path)
        return read_pretrained(_SECTION, AutoConfig, settings.path)
    given = settings.config or {}
    if "vocab_size" in given:
        raise ValueError("language_model.config has a vocab_size; leave it out, it is the tokenizer's")
    return config_of(_SECTION, given, "qwen2, qwen3 or llama", vocab_size=vocabulary)


@torch.no_grad()
def _scale_embeddings(network: "PreTrainedModel", scale: float) -> None:
    if scale == 1:
        return
    embeddings = network.get_input_embeddings().weight
    if network.get_output_embeddings().weight is embeddings:
        raise ValueError(
            f"language_model.embedding_scale is {scale}, but one matrix reads tokens and writes them, whose scores "
            "would be as many times too large; set tie_word_embeddings: false in language_model.config"
        )
    embeddings.mul_(scale)


@torch.no_grad()
def _widen_vocabulary(network: "PreTrainedModel", vocabulary: int) -> int:
    old = network.get_input_embeddings().num_embeddings
    if vocabulary <= old:  # often there are spare rows
        return 0
    network.resize_token_embeddings(vocabulary, mean_resizing=False)
    for layer in (network.get_input_embeddings(), network.get_output_embeddings()):
        # The mean of the others is the same whenever it is built, and as an output never the most likely token.
        layer.weight[old:] = layer.weight[:old].double().mean(dim=0).to(layer.weight.dtype)
    log.info("language model: %d tokens of the tokenizer are new to it, they begin as a mean", vocabulary - old)
    return vocabulary - old


def _with_adapters(network: "PreTrainedModel", lora: LoraSettings) -> nn.Module:
    from peft import LoraConfig, TaskType, get_peft_model

    adapters = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        bias=lora.bias,
        task_type=TaskType.CAUSAL_LM,
    )
    try:
        with warnings.catch_warnings():  # peft asks transformers by a name that is to go
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            return get_peft_model(network, adapters)
    except ValueError as error:
        raise ValueError(f"language_model.lora: {error}") from error
