"""Defines the settings of the parts of a pretrained image-text model."""

from dataclasses import dataclass, replace
from typing import Literal

from lightning_modules.multimodal.language.settings import LanguageModelSettings


@dataclass(frozen=True)
class PartSettings:
    """Vision tower or connector of a pretrained image-text model.

    Args:
        trainable: trainable weights: `none` or `full`.
    """

    trainable: Literal["none", "full"] = "none"


def language_model_settings(language_model: LanguageModelSettings, path: str) -> LanguageModelSettings:
    """Return the settings of a language model inside the pretrained model at `path`.

    Raises:
        ValueError: they name another language model.
    """
    if language_model.path is not None or language_model.config is not None:
        key = "config" if language_model.path is None else "path"
        raise ValueError(
            f"model.init_args.language_model.{key} is set, but model.init_args.path {path} has its own language model; "
            "remove it, or use VisionLanguageModel to assemble a model from parts"
        )
    if language_model.attention == "flex_attention":
        raise ValueError(
            "model.init_args.language_model.attention is flex_attention, which a pretrained image-text model does not "
            "support, as its vision tower would get it too. Set it to sdpa or flash_attention_2"
        )
    settings = replace(language_model, path=path)
    settings.check()
    return settings
