"""Builds a vision transformer of transformers as its settings say; transformers is imported when one is built."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from engine.hub import why_unreachable
from lightning_modules.multimodal.pretrained import (
    config_of,
    few,
    read_pretrained,
    require_local_files,
    switch_off_dropout,
)
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_SECTION = "vision_tower"
_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


class Kind(NamedTuple):
    """How an architecture is built."""

    layers: str  # where its layers are
    norm: str  # the norm behind the last layer
    own_tokens: int  # class and distillation tokens in front of the patches
    normalisation: tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of pixels in [0, 1]


KINDS = {
    "siglip_vision_model": Kind("encoder.layers", "post_layernorm", 0, _HALVES),
    "siglip2_vision_model": Kind("encoder.layers", "post_layernorm", 0, _HALVES),
    "clip_vision_model": Kind("encoder.layers", "post_layernorm", 1, _CLIP),
    "dinov2": Kind("encoder.layer", "layernorm", 1, _IMAGENET),
    "dinov2_with_registers": Kind("encoder.layer", "layernorm", 1, _IMAGENET),
    "vit": Kind("layers", "layernorm", 1, _HALVES),
    "deit": Kind("layers", "layernorm", 2, _IMAGENET),
}

_NORM_IN_POOLER_ALONE = ("clip_vision_model",)
"""What these hand out is not normed."""


class TowerShape(NamedTuple):
    """What a tower takes and makes."""

    image_size: int  # pixels of an image's edges
    patches: int  # features of an image
    output_size: int  # width of a feature


class Normalisation(NamedTuple):
    """(pixel * scale - mean) / deviation, of each channel; pixels are 0 to 255."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def tower_config(settings: VisionTowerSettings) -> "PretrainedConfig":
    """The config of the network as it is built: without heads, and with the layers that are needed.

    Raises:
        ValueError: there is no such model, it is of an unknown kind, or it has fewer layers than are asked for.
    """
    from transformers import AutoConfig

    if settings.path is not None:
        require_local_files(_SECTION, settings.path)
        config = read_pretrained(_SECTION, AutoConfig, settings.path)
    else:
        config = config_of(_SECTION, settings.config or {}, "siglip_vision_model, clip_vision_model, dinov2 or vit")
    config = getattr(config, "vision_config", config)
    if config.model_type not in KINDS:
        raise ValueError(
            f"vision_tower.{'config' if settings.path is None else 'path'} is of the model type {config.model_type}; "
            f"known are {', '.join(KINDS)}"
        )
    if settings.trainable == "none":
        switch_off_dropout(config)
    for unused in ("vision_use_head", "use_mask_token"):
        if hasattr(config, unused):
            setattr(config, unused, False)
    config.num_hidden_layers = _kept_layers(settings.feature_layer, config.num_hidden_layers)
    return config


def _kept_layers(feature_layer: int | None, layers: int) -> int:
    if feature_layer is None:
        return layers
    kept = feature_layer if feature_layer >= 0 else layers + 1 + feature_layer
    if not 1 <= kept <= layers:
        raise ValueError(
            f"vision_tower.feature_layer is {feature_layer}, but the model has {layers} layers: take one from "
            f"{-layers} to -1, or null for what the model hands out"
        )
    return kept


def shape_of(config: "PretrainedConfig") -> TowerShape:
    """
    Raises:
        ValueError: images or patches are not square.
    """
    patch = _edge(config, "patch_size")
    if config.model_type == "siglip2_vision_model":  # takes any number of patches; this is what it was trained with
        edge = int(config.num_patches**0.5)
        return TowerShape(edge * patch, edge * edge, config.hidden_size)
    size = _edge(config, "image_size")
    return TowerShape(size, (size // patch) ** 2, config.hidden_size)


def _edge(config: "PretrainedConfig", key: str) -> int:
    value = getattr(config, key)
    edges = {value} if isinstance(value, int) else set(value)
    if len(edges) != 1:
        raise ValueError(f"vision_tower: {key} of the model is {value}; only squares are known")
    return edges.pop()


def load_tower(settings: VisionTowerSettings, config: "PretrainedConfig", dtype: torch.dtype) -> "PreTrainedModel":
    """The network, without anything that its features are not made with.

    Raises:
        ValueError: weights that it needs are not in its files.
    """
    from transformers import AutoModel

    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa"}
    missing: set[str] = set()
    if settings.path is None:
        network = AutoModel.from_config(config, **options)
    else:
        options.update(config=config, output_loading_info=True)
        with _without_report():
            network, found = read_pretrained(_SECTION, AutoModel, settings.path, **options)
        missing = set(found["missing_keys"])
    if hasattr(network, "pooler"):
        network.pooler = None
    if getattr(network.embeddings, "mask_token", None) is not None:  # for a training that is none of ours
        network.embeddings.mask_token = None
    if settings.feature_layer is not None or config.model_type in _NORM_IN_POOLER_ALONE:
        setattr(network, KINDS[config.model_type].norm, nn.Identity())
    lacking = missing & network.state_dict().keys()  # transformers gives them random values
    if lacking:
        raise ValueError(f"vision_tower.path: {settings.path} lacks {few(lacking)}: is it whole?")
    return network


@contextmanager
def _without_report() -> Iterator[None]:
    """Transformers lists every weight of a text model or a head that is not read, and every layer as not sharded."""
    names = ("transformers.modeling_utils", "transformers.distributed.tensor_parallel")
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def own_tokens(config: "PretrainedConfig") -> int:
    """Tokens in front of the patches: class, distillation, registers."""
    return KINDS[config.model_type].own_tokens + getattr(config, "num_register_tokens", 0)


def normalisation_of(settings: VisionTowerSettings, config: "PretrainedConfig") -> Normalisation:
    """As the file beside the weights says, else as models of the kind are trained."""
    mean, deviation = KINDS[config.model_type].normalisation
    said = _preprocessor(settings.path) if settings.path is not None else {}
    if not said.get("do_normalize", True):
        mean, deviation = (0.0,) * 3, (1.0,) * 3
    scale = said.get("rescale_factor", 1 / 255) if said.get("do_rescale", True) else 1.0
    return Normalisation(scale, tuple(said.get("image_mean") or mean), tuple(said.get("image_std") or deviation))


def _preprocessor(path: str) -> dict[str, Any]:
    local = Path(path).expanduser()
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = local / name if local.is_dir() else _of_the_hub(path, name)
        if file is not None and file.is_file():
            said = json.loads(file.read_text(encoding="utf-8"))
            return said.get("image_processor", said)
    return {}


def _of_the_hub(path: str, name: str) -> Path | None:
    from transformers.utils import cached_file

    found = cached_file(
        path,
        name,
        local_files_only=why_unreachable() is not None,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)
