"""Builds a causal language model of transformers as its settings say; transformers is imported when one is built."""

import difflib
import logging
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from engine.hub import why_unreachable
from lightning_modules.multimodal.language_model_settings import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.precision import Precision, set_dtypes

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

log = logging.getLogger("lockstep")

_WEIGHTS = ("*.safetensors", "*.bin")


def load_language_model(
    settings: LanguageModelSettings, vocabulary: int, precision: Precision
) -> tuple["PreTrainedModel", int]:
    """The model, in training mode, before it is decided what trains; and how many of the tokens were new to it.

    Weights are read in the format they are used in. Where only some layers train, all are read in the trained ones'
    format, so that these lose nothing, and the frozen ones are narrowed afterwards.

    Raises:
        ValueError: the config names what the model type does not have, or there is no such model.
    """
    from transformers import AutoModelForCausalLM

    config = _config(settings, vocabulary)
    if settings.trainable == "none":
        _switch_off_dropout(config)
    dtype = precision.frozen if settings.trainable in ("none", "lora") else precision.trained
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": settings.attention}
    if settings.path is None:
        network = AutoModelForCausalLM.from_config(config, **options)
    else:
        network, found = _read(AutoModelForCausalLM, settings.path, config=config, output_loading_info=True, **options)
        if found["missing_keys"]:  # transformers gives them random values
            raise ValueError(f"language_model.path: {settings.path} lacks {_few(found['missing_keys'])}: is it whole?")
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
        _require_local_files(settings.path)
        return _read(AutoConfig, settings.path)
    given = dict(settings.config or {})
    kind = given.pop("model_type", None)
    if kind is None:
        raise ValueError("language_model.config has no model_type, such as qwen2, qwen3 or llama")
    if "vocab_size" in given:
        raise ValueError("language_model.config has a vocab_size; leave it out, it is the tokenizer's")
    try:
        known = AutoConfig.for_model(kind)
    except ValueError:
        raise ValueError(f"language_model.config.model_type is {kind!r}, which transformers does not know") from None
    for key in given:
        if not hasattr(known, key):  # transformers takes any key, a misspelt one without effect
            near = difflib.get_close_matches(key, known.to_dict(), n=1)
            raise ValueError(
                f"language_model.config.{key}: {kind} has no such setting" + (f"; did you mean {near[0]}?" * bool(near))
            )
    return AutoConfig.for_model(kind, **given, vocab_size=vocabulary)


def _require_local_files(path: str) -> None:
    folder = Path(path).expanduser()
    if folder.is_dir():
        lacking = [] if (folder / "config.json").is_file() else ["config.json"]
        if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
            lacking.append("weights (*.safetensors)")
        if lacking:
            raise ValueError(
                f"language_model.path: {path} has no {' and no '.join(lacking)}; "
                "give a directory that save_pretrained of transformers has written"
            )
    elif folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise ValueError(f"language_model.path: there is no directory {path}")


def _read(auto: Any, path: str, **options: Any) -> Any:
    from safetensors import SafetensorError
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # of every process, over the lines of the others
    local = Path(path).expanduser()
    options["trust_remote_code"] = False
    try:
        if local.is_dir():
            return auto.from_pretrained(str(local), local_files_only=True, **options)
        if why_unreachable():  # otherwise the cache would be asked after half a minute of attempts
            options["local_files_only"] = True
        return auto.from_pretrained(path, **options)
    except (OSError, ImportError, ValueError, RuntimeError, SafetensorError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if local.is_dir():
            raise ValueError(f"language_model.path: {path} cannot be loaded: {said}") from error
        raise ValueError(
            f"language_model.path: {path} is neither a local directory nor in the cache nor to be had from the hub: "
            f"{why_unreachable() or said}. Fetch it where there is a network (hf download {path} --local-dir DIR) and "
            "set language_model.path to DIR"
        ) from error


def _few(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more weights" if len(ordered) > 3 else "")


def _switch_off_dropout(config: "PretrainedConfig") -> None:
    # A frozen model stays in training mode (see above), so its dropout is taken out of its settings.
    for key, value in config.to_dict().items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)


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
