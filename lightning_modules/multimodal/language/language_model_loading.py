"""Builds a causal language model of transformers from its settings.

transformers takes seconds to import, so it is imported when a model is built.
"""

import logging
from typing import TYPE_CHECKING, Any

import torch

from lightning_modules.multimodal.language.logit_processing import require_known_scores
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.settings import AttentionKind, LanguageModelSettings
from lightning_modules.multimodal.language.transformers_loading import (
    build,
    config_of,
    preview_names,
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
    """Load or build the model, in training mode, with all weights trainable.

    Weights are read in the format they are used in. If only some layers train, all weights are read in the format of
    trainable ones, and `adapters.freeze_and_add_adapters` narrows the frozen weights.

    Returns:
        The model, and the number of the tokenizer's tokens that it does not have.

    Raises:
        ValueError: the config has unknown settings, there is no such model, it has no attention of the chosen kind, or
            it processes logits in an unknown way.
    """
    from transformers import AutoModelForCausalLM

    if settings.path is not None:
        require_local_files(_SECTION, settings.path)
    # Files and config are checked first: reading the weights takes minutes, and these errors need seconds.
    config = model_config(settings, vocabulary)
    require_whole_weights_on_disk("language_model", config, settings.path)
    if settings.trainable == "none":
        # Switched off in the config, because the layers read their rates from it when they are built.
        switch_off_dropout(config)
    require_attention(config, settings.attention)
    # Read wide and narrowed afterwards, a frozen model would take twice its memory for a while.
    dtype = precision.frozen if settings.trainable in ("none", "lora") else precision.trained
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": settings.attention}
    if settings.path is None:
        network = build(_SECTION, AutoModelForCausalLM.from_config, config, **options)
        _scale_embeddings(network, settings.embedding_scale)
    else:
        options.update(config=config, output_loading_info=True)
        network, loading_info = read_pretrained(_SECTION, AutoModelForCausalLM, settings.path, **options)
        if missing := loading_info["missing_keys"]:  # transformers gives them random values
            raise ValueError(f"language_model.path: {settings.path} lacks {preview_names(missing)}: is it whole?")
    # Losses are computed from hidden states, not by the model's own forward, so `process_logits` must
    # process logits as the model does.
    require_known_scores(network)
    widened = _widen_vocabulary(network, vocabulary)
    # from_pretrained returns models in evaluation mode, in which transformers checkpoints no activations.
    return network.train(), widened


def model_config(settings: LanguageModelSettings, vocabulary: int) -> "PretrainedConfig":
    """Return the config of transformers of the model that the settings describe. Of `path`, only config.json is read.

    Raises:
        ValueError: there is no such model, or the config has unknown settings.
    """
    from transformers import AutoConfig

    if settings.path is not None:
        return read_pretrained(_SECTION, AutoConfig, settings.path)
    sizes = settings.config or {}
    if "vocab_size" in sizes:
        raise ValueError("language_model.config has a vocab_size; remove it, it follows from the tokenizer")
    return config_of(_SECTION, sizes, "qwen2, qwen3 or llama", vocab_size=vocabulary)


def require_whole_weights_on_disk(section: str, config: "PretrainedConfig", path: str | None) -> None:
    """Raise ValueError if the files hold quantized weights, of which others would be made."""
    quantized = getattr(config, "quantization_config", None)
    if quantized is not None:
        quantization = quantized if isinstance(quantized, dict) else quantized.to_dict()
        raise ValueError(
            f"{section}.path: {path} holds weights quantized by {quantization.get('quant_method')}, expected them in "
            "16 or 32 bits. Use the directory that they were made from, and language_model.quantize nf4 or int8"
        )


def require_attention(config: "PretrainedConfig", attention: AttentionKind) -> None:
    """Raise ValueError if transformers has no such attention for this model, as no sdpa for Gemma 2."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    network = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if network is None:  # transformers names the models that it knows
        return
    # Class attributes of transformers' models; every model computes `eager`.
    flags: dict[AttentionKind, str] = {
        "sdpa": "_supports_sdpa",
        "flash_attention_2": "_supports_flash_attn",
        "flex_attention": "_supports_flex_attn",
    }
    supported = ["eager", *(kind for kind, flag in flags.items() if getattr(network, flag, False))]
    if "sdpa" not in supported and "flex_attention" in supported:  # without CUDA, and to generate, sdpa replaces it
        supported.remove("flex_attention")
    if attention not in supported:
        raise ValueError(
            f"language_model.attention is {attention}, but transformers computes a {config.model_type} with "
            f"{' or '.join(supported)} only. Set language_model.attention {supported[0]}"
        )
    dropout = getattr(config, "attention_dropout", None)
    if attention == "flex_attention" and dropout:
        raise ValueError(
            f"language_model.attention is flex_attention, which has no dropout, but the model's attention_dropout is "
            f"{dropout}. Set language_model.attention sdpa"
        )


@torch.no_grad()
def _scale_embeddings(network: "PreTrainedModel", scale: float) -> None:
    if scale == 1:
        return
    embeddings = network.get_input_embeddings().get_parameter("weight")
    if network.get_output_embeddings().weight is embeddings:
        raise ValueError(
            f"language_model.embedding_scale is {scale}, but the model shares its embeddings with the output "
            "layer, whose logits would grow by the same factor; set tie_word_embeddings: false in language_model.config"
        )
    embeddings.mul_(scale)


@torch.no_grad()
def _widen_vocabulary(network: "PreTrainedModel", vocabulary: int) -> int:
    embeddings: Any = network.get_input_embeddings()
    old: int = embeddings.num_embeddings
    if vocabulary <= old:  # many models have spare rows
        return 0
    # `mean_resizing` would draw the new rows from a normal distribution fitted to the old rows.
    network.resize_token_embeddings(vocabulary, mean_resizing=False)
    for layer in (network.get_input_embeddings(), network.get_output_embeddings()):
        # The mean of the other rows needs no random numbers, and as an output it is never the most likely token.
        weight = layer.get_parameter("weight")
        weight[old:] = weight[:old].double().mean(dim=0).to(weight.dtype)
    log.info(
        "language model: %d tokens of the tokenizer are new to it, initialized with the mean embedding",
        vocabulary - old,
    )
    return vocabulary - old
