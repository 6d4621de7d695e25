"""Selects the weights of a language model that train: all, the last layers, LoRA adapters, or none.

LoRA: Hu et al. 2021, arXiv 2106.09685, through peft.
"""

import warnings
from typing import TYPE_CHECKING

from lightning_modules.multimodal.language.activation_checkpointing import recompute_activations
from lightning_modules.multimodal.language.config import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.language.precision import Precision, set_dtypes

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


def freeze_and_add_adapters(
    network: "PreTrainedModel", settings: LanguageModelSettings, precision: Precision
) -> "PreTrainedModel | PeftModel":
    """Freeze weights and set number formats; return the model, wrapped by peft under `lora`.

    Raises:
        ValueError: the model has fewer layers than `last_n_layers`, or no layer that can have an adapter.
    """
    network.requires_grad_(settings.trainable == "full")
    chosen: PreTrainedModel | PeftModel = network
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
        recompute_activations(network)
    return chosen


def _with_adapters(network: "PreTrainedModel", lora: LoraSettings) -> "PeftModel":
    from peft import LoraConfig, TaskType, get_peft_model

    adapters = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft only divides it by the rank.
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        bias=lora.bias,
        task_type=TaskType.CAUSAL_LM,
    )
    try:
        with warnings.catch_warnings():  # peft uses a deprecated name of transformers
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            return get_peft_model(network, adapters)
    except ValueError as error:
        raise ValueError(f"language_model.lora: {error}") from error
