"""Predicts the memory of a training step of a language model: runs the step on tensors without values."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.language_model_loading import model_config
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.step_trace import MemoryEstimate, TracedStep, Workload, estimate_step


def estimate_memory(
    settings: LanguageModelSettings, vocabulary: int, precision: Precision, work: Workload
) -> MemoryEstimate:
    """Return the memory of a training step, without the encoder of the other modality.

    The step of two models with few layers runs on tensors without values, and a counter follows their storages. All
    counts are linear in the number of layers. Nothing is loaded or allocated. Attention is a fused kernel.

    Args:
        settings: settings of the model; of `path`, only config.json is read.
        vocabulary: number of the tokenizer's tokens.
        precision: number formats.
        work: the step. With shards, this process must not be in a process group.

    Raises:
        ValueError: the model cannot be built from its config.
    """
    settings = replace(settings, compile=False)  # takes a minute, and no tensor has values
    config = model_config(settings, vocabulary)

    def build(resized: Any) -> TracedStep:
        return _LanguageModelStep(resized, settings, precision, work)

    return estimate_step(config, build, settings, precision, work)


class _LanguageModelStep(TracedStep):
    """The loss of a micro-batch whose tokens are all supervised."""

    def __init__(self, config: Any, settings: LanguageModelSettings, precision: Precision, work: Workload) -> None:
        from transformers import AutoModelForCausalLM

        network = network_without_weights(AutoModelForCausalLM, config, settings, precision)
        loading = sum(parameter.nbytes for parameter in network.parameters())
        super().__init__(LanguageModel(settings, 1, precision, network=network), loading)
        self._shape = work.rows, work.tokens

    @override
    def batch(self) -> Tensor:
        return torch.empty(self._shape, dtype=torch.long)

    @override
    def forward(self, tokens: Tensor, end_phase: Callable[[], None]) -> Tensor:
        """Return the loss, given tokens [R, L]."""
        model = self.language_model
        embeddings = model.embed(tokens)
        if not embeddings.requires_grad:  # the features of the other modality are trained
            embeddings = embeddings.detach().requires_grad_()
        states = model.hidden_states(embeddings, tokens)
        for each in (embeddings, states):
            each.register_hook(lambda gradient: end_phase())
        # `terms` selects the supervised tokens, which depends on values.
        return supervised_loss(model, *(each.flatten(0, 1).clone() for each in (states[:, :-1], tokens[:, 1:])))


def network_without_weights(
    auto: Any, config: Any, settings: LanguageModelSettings, precision: Precision, others_train: bool = False
) -> Any:
    """Return a model of transformers on the device `meta`, in the format in which its weights are read.

    Args:
        auto: class of transformers that builds it.
        config: its config.
        settings: settings of the language model.
        precision: number formats.
        others_train: whether other weights than the language model's train.
    """
    kind = precision.frozen if settings.trainable in ("none", "lora") and not others_train else precision.trained
    # flash_attention_2 takes the memory of sdpa, and needs a GPU.
    attention = "eager" if settings.attention == "eager" else "sdpa"
    with torch.device("meta"):
        return auto.from_config(config, dtype=kind, attn_implementation=attention).train()


def supervised_loss(model: LanguageModel, states: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of states [N, C] and the tokens [N] that follow them."""
    if model.settings.loss_kernel == "liger":  # it has the logits of a chunk at a time, here of the first
        chunk = _liger_chunk(len(states), model.hidden_size, model.causal_lm.config.get_text_config().vocab_size)
        states, targets = states[:chunk], targets[:chunk]
    return model.supervised_terms(states, targets).mean()


def _liger_chunk(tokens: int, width: int, vocabulary: int) -> int:
    """Return the number of tokens whose logits Liger has at a time: they take about as much as all states."""
    return min(tokens, 1 << (math.ceil(tokens / math.ceil(vocabulary / width)) - 1).bit_length())
