"""Predicts the memory that training a language model takes, from its shapes alone: nothing is loaded or allocated."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from lightning_modules.multimodal.language.adapters import freeze_and_add_adapters
from lightning_modules.multimodal.language.config import LanguageModelSettings
from lightning_modules.multimodal.language.loading import model_config
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.quantization import BLOCK, SCALES_BLOCK

_SCORED = 1024  # see language_model.py
_SMALLEST_8BIT = 4096  # numbers of a tensor whose state bitsandbytes keeps in 32 bits below


class MemoryEstimate(NamedTuple):
    """Bytes of device memory, by use."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """Of one micro-batch, with logits and a dequantized weight."""
    loading: int
    """Of the host, while the weights are loaded before they are quantized."""

    @property
    def total(self) -> int:
        """Bytes of the device at the peak of a step."""
        return self.weights + self.gradients + self.optimizer + self.activations


def estimate_memory(
    settings: LanguageModelSettings,
    vocabulary: int,
    precision: Precision,
    tokens: int,
    state_bytes: int = 8,
) -> MemoryEstimate:
    """Return the memory of a training step, without the encoder of the other modality.

    Args:
        settings: settings of the model; of `path`, only config.json is read.
        vocabulary: number of the tokenizer's tokens.
        precision: number formats.
        tokens: positions of a micro-batch, padding included; all are taken as supervised.
        state_bytes: bytes of the optimizer's state for each trained number: 8 of AdamW, 2 of 8-bit AdamW, 0 with
            offload.

    Raises:
        ValueError: the model cannot be built from its config.
    """
    from transformers import AutoModelForCausalLM

    config = model_config(settings, vocabulary)
    on_meta = replace(settings, quantize="none", activation_checkpointing=False, compile=False)
    with torch.device("meta"):
        network: Any = AutoModelForCausalLM.from_config(config, dtype=precision.frozen)
        loading = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
        decoder = network.get_decoder()
        linear = {id(layer.weight): layer for layer in decoder.modules() if type(layer) is nn.Linear}
        freeze_and_add_adapters(network, on_meta, precision)
    weights = gradients = optimizer = 0
    for parameter in network.parameters():
        size = parameter.numel() * parameter.element_size()
        quantized = settings.quantize != "none" and id(parameter) in linear
        weights += _quantized_bytes(parameter, settings) if quantized else size
        if parameter.requires_grad:
            gradients += size
            eight_bit = state_bytes == 2 and parameter.numel() >= _SMALLEST_8BIT
            optimizer += parameter.numel() * (state_bytes if eight_bit or state_bytes != 2 else 8)
    activations = _activations(config.get_text_config(), settings, precision, tokens)
    if settings.quantize != "none":
        activations += 2 * max(layer.weight.numel() for layer in linear.values()) * _width(precision)
    return MemoryEstimate(weights, gradients, optimizer, activations, loading)


def _quantized_bytes(weight: nn.Parameter, settings: LanguageModelSettings) -> int:
    """Return the bytes of QuantizedWeight."""
    if settings.quantize == "int8":
        return weight.numel() + 4 * weight.shape[0]
    blocks = math.ceil(weight.numel() / BLOCK)
    scales = blocks + 4 * math.ceil(blocks / SCALES_BLOCK) + 4 if settings.double_quantize else 4 * blocks
    return math.ceil(weight.numel() / 2) + scales


def _activations(config: Any, settings: LanguageModelSettings, precision: Precision, tokens: int) -> int:
    """Return what is kept for the backward pass, counted over the operations of a Llama-like layer.

    Norms keep their input in fp32. Attention keeps queries, keys, values and its output; the gated feed-forward network
    three states of its width. A trained or adapted linear layer keeps its input.
    """
    width, byte = config.hidden_size, _width(precision)
    given = (getattr(config, key, None) for key in ("intermediate_size", "ffn_dim", "n_inner"))
    inner = next((size for size in given if size), 4 * width)  # as GPT-2 has it
    heads = config.num_attention_heads
    keys = (getattr(config, "num_key_value_heads", None) or heads) * (
        getattr(config, "head_dim", None) or width // heads
    )
    layer = 2 * 4 * width + byte * (2 * width + 2 * keys) + byte * 3 * inner
    if settings.trainable != "none":
        layer += byte * (6 * width + inner)
    layers = config.num_hidden_layers
    kept = layers * byte * width + layer if settings.activation_checkpointing else layers * layer
    # Logits in the format of the products, in fp32, and the gradients of both.
    scored = min(tokens, _SCORED) if settings.activation_checkpointing else tokens
    return tokens * kept + scored * config.vocab_size * (2 * byte + 8)


def _width(precision: Precision) -> int:
    return (precision.autocast or precision.frozen).itemsize
