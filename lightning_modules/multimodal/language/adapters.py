"""Selects the weights of a language model that train: all, the last layers, LoRA adapters, or none.

LoRA: Hu et al. 2021, arXiv 2106.09685, through peft. Frozen weights may be quantized.
"""

import warnings
from typing import TYPE_CHECKING, cast

import torch

from engine.system.bitsandbytes_import import silence_bitsandbytes_import
from engine.system.host_memory import release_free_memory
from lightning_modules.multimodal.language.activation_checkpointing import recompute_activations
from lightning_modules.multimodal.language.precision import Precision, set_dtypes
from lightning_modules.multimodal.language.quantized_linear import dequantize_linear_layers, quantize_linear_layers
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


def freeze_and_add_adapters(
    network: "PreTrainedModel",
    settings: LanguageModelSettings,
    precision: Precision,
    device: torch.device | None = None,
) -> "PreTrainedModel | PeftModel":
    """Freeze weights, quantize them and set number formats; return the model, wrapped by peft under `lora`.

    Args:
        network: model of transformers, changed in place.
        settings: settings of the model.
        precision: number formats.
        device: where weights are quantized, by default where they are.

    Raises:
        ValueError: the model has fewer layers than `last_n_layers`, or no layer that can have an adapter.
    """
    network.requires_grad_(settings.trainable == "full")
    if settings.quantize != "none":
        # The embeddings and the output layer stay as they are, as in QLoRA: the two may share their weight.
        quantize_linear_layers(network.get_decoder(), settings.quantize, settings.double_quantize, device=device)
    trained_network: PreTrainedModel | PeftModel = network
    if settings.trainable == "last_n_layers":
        layers = network.get_decoder().layers
        if settings.last_n_layers > len(layers):
            raise ValueError(
                f"language_model.last_n_layers is {settings.last_n_layers}, but the model has {len(layers)} layers"
            )
        layers[-settings.last_n_layers :].requires_grad_(True)
    elif settings.trainable == "lora":
        # After quantizing, which would take the adapters' own linear layers for layers of the model.
        trained_network = _add_adapters(network, settings.lora)
    # Once it is settled which weights train, adapters included: the format of a weight depends on that.
    set_dtypes(trained_network, precision)
    if settings.quantize != "none":
        release_free_memory()  # the C library would keep the memory of the replaced weights
    if settings.activation_checkpointing:
        recompute_activations(network)
    return trained_network


def whole_model(network: "PreTrainedModel | PeftModel", settings: LanguageModelSettings) -> "PreTrainedModel":
    """Dequantize frozen weights, merge adapters into them, in place, and return the model of transformers.

    The weights are dequantized first: merged into quantized weights, adapters would be rounded to their few bits.
    """
    dequantize_linear_layers(network)
    if settings.trainable == "lora":
        # W + (alpha / rank) B A for each adapted layer; peft then removes its wrappers.
        return cast("PreTrainedModel", cast("PeftModel", network).merge_and_unload())
    return cast("PreTrainedModel", network)


def _add_adapters(network: "PreTrainedModel", lora: LoraSettings) -> "PeftModel":
    silence_bitsandbytes_import()  # peft imports it where it is installed
    from peft import LoraConfig, TaskType, get_peft_model

    adapters = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft only divides it by the rank.
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        bias=lora.bias,
        use_rslora=lora.use_rslora,
        use_dora=lora.use_dora,
        task_type=TaskType.CAUSAL_LM,
    )
    try:
        # peft raises ValueError for target_modules that match no layer; its message names them.
        with warnings.catch_warnings():  # peft uses a deprecated name of transformers
            warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
            return get_peft_model(network, adapters)
    except ValueError as error:
        raise ValueError(f"language_model.lora: {error}") from error
