"""Loads a pretrained image-text model of transformers: its config, then its weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.io.error_line import first_line
from engine.system.hf_hub import hub_unreachable_reason
from lightning_modules.multimodal.language.language_model_loading import (
    require_attention,
    require_whole_weights_on_disk,
)
from lightning_modules.multimodal.language.logit_processing import require_known_scores
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language.transformers_loading import (
    preview_names,
    read_pretrained,
    require_local_files,
)
from lightning_modules.vision_language.pretrained.image_text_classes import find_image_text_class

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_SECTION = "model.init_args"
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]


def load_config(path: str) -> "PretrainedConfig":
    """Load the config of a model.

    Raises:
        ValueError: there is no such model, or its class is not supported.
    """
    from transformers import AutoConfig

    require_local_files(_SECTION, path)
    config = read_pretrained(_SECTION, AutoConfig, path)
    # Raises for an unknown class before gigabytes are downloaded.
    find_image_text_class(path, config)
    return config


def download_model(path: str) -> Path:
    """Return the directory with the files of a model and its processor, downloaded if the path is a name on the hub.

    Raises:
        ValueError: the hub cannot be reached, and the files are not in its cache.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        return local
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=_FILES, local_files_only=bool(hub_unreachable_reason())))
    except (OSError, ValueError) as error:
        raise ValueError(f"{_SECTION}.path: {path} cannot be downloaded: {first_line(error)}") from error


def load_image_text_model(
    config: "PretrainedConfig", settings: LanguageModelSettings, precision: Precision, parts_train: bool
) -> "PreTrainedModel":
    """Load the weights, in training mode, in the format of trainable weights if any part other than adapters trains.

    Raises:
        ValueError: weights are missing, quantized or not in safetensors, the language model has no attention of the
            chosen kind, or the model processes its logits otherwise than its language model.
    """
    from transformers import AutoModelForImageTextToText

    assert settings.path is not None
    require_whole_weights_on_disk(_SECTION, config, settings.path)
    require_attention(config.get_text_config(), settings.attention)
    frozen = settings.trainable in ("none", "lora") and not parts_train
    options: dict[str, Any] = {
        "config": config,
        "attn_implementation": settings.attention,
        "dtype": precision.frozen if frozen else precision.trained,
        # Files of pickle may run code when they are loaded.
        "use_safetensors": True,
        "output_loading_info": True,
    }
    network, loading_info = read_pretrained(_SECTION, AutoModelForImageTextToText, settings.path, **options)
    if loading_info["missing_keys"]:  # transformers gives them random values
        raise ValueError(
            f"{_SECTION}.path: {settings.path} lacks {preview_names(loading_info['missing_keys'])}: is it whole?"
        )
    # A Granite divides its logits by logits_scaling; transformers' LLaVA-NeXT with a Granite does not.
    require_known_scores(network)
    # from_pretrained returns models in evaluation mode, in which transformers checkpoints no activations.
    return network.train()
