"""Builds a vision transformer of transformers from its settings.

transformers takes seconds to import, so it is imported when a tower is built.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from engine.system.hf_hub import hub_unreachable_reason
from lightning_modules.multimodal.language.pretrained import (
    build,
    config_of,
    preview_names,
    read_pretrained,
    require_local_files,
    switch_off_dropout,
)
from lightning_modules.multimodal.vision.config import VisionTowerSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_SECTION = "vision_tower"

_CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of RGB in [0, 1] that CLIP was trained with; used if a model's files have none."""

_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The same of models that were trained with the statistics of ImageNet."""

_HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
"""The same of models that were trained with pixels in [-1, 1]."""


class TowerKind(NamedTuple):
    """Structure of an architecture."""

    layers: str  # submodule with the layers
    norm: str  # submodule with the norm after the last layer
    own_tokens: int  # number of class and distillation tokens before the patches
    normalisation: tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of pixels in [0, 1]


KINDS = {
    "siglip_vision_model": TowerKind("encoder.layers", "post_layernorm", 0, _HALVES),
    "siglip2_vision_model": TowerKind("encoder.layers", "post_layernorm", 0, _HALVES),
    "clip_vision_model": TowerKind("encoder.layers", "post_layernorm", 1, _CLIP),
    "dinov2": TowerKind("encoder.layer", "layernorm", 1, _IMAGENET),
    "dinov2_with_registers": TowerKind("encoder.layer", "layernorm", 1, _IMAGENET),
    "dinov3_vit": TowerKind("model.layer", "norm", 1, _IMAGENET),
    "vit": TowerKind("layers", "layernorm", 1, _HALVES),
    "deit": TowerKind("layers", "layernorm", 2, _IMAGENET),
}

_NORM_IN_POOLER_ALONE = ("clip_vision_model",)
"""Architectures whose last hidden state is not normalised."""


class TowerShape(NamedTuple):
    """Sizes of a tower's images and features."""

    image_size: int  # pixels along each edge of an image
    patches: int  # features of an image
    output_size: int  # width of a feature


class Normalisation(NamedTuple):
    """(pixel * scale - mean) / deviation of each channel, for pixels from 0 to 255."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def tower_config(settings: VisionTowerSettings) -> "PretrainedConfig":
    """Return the config of the network as it is built: without heads, and without layers after `feature_layer`.

    Raises:
        ValueError: there is no such model, its kind is unknown, or it has too few layers.
    """
    from transformers import AutoConfig

    if settings.path is not None:
        require_local_files(_SECTION, settings.path)
        config = read_pretrained(_SECTION, AutoConfig, settings.path)
    else:
        config = config_of(_SECTION, settings.config or {}, "siglip_vision_model, clip_vision_model, dinov2 or vit")
    # CLIP and SigLIP with a text model nest the tower's config.
    config = getattr(config, "vision_config", config)
    if config.model_type not in KINDS:
        raise ValueError(
            f"vision_tower.{'config' if settings.path is None else 'path'} is of the model type {config.model_type}; "
            f"known are {', '.join(KINDS)}"
        )
    # A frozen tower stays in training mode, and its features must not vary with it.
    if settings.trainable == "none":
        switch_off_dropout(config)
        for augmentation in ("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"):  # of DINOv3, in training mode
            if hasattr(config, augmentation):
                setattr(config, augmentation, None)
    if hasattr(config, "use_mask_token"):
        config.use_mask_token = False
    if config.model_type.startswith("siglip"):  # transformers 5.20 builds the head unless the config disables it
        config.vision_use_head = False
    # Layers behind the features would cost time and memory without an effect, and DDP would miss their gradients.
    config.num_hidden_layers = _kept_layers(settings.feature_layer, config.num_hidden_layers)
    return config


def _kept_layers(feature_layer: int | None, layers: int) -> int:
    if feature_layer is None:
        return layers
    # transformers counts the embeddings as hidden state 0, so `layers` layers have layers + 1 states.
    kept = feature_layer if feature_layer >= 0 else layers + 1 + feature_layer
    if not 1 <= kept <= layers:
        raise ValueError(
            f"vision_tower.feature_layer is {feature_layer}, but the model has {layers} layers: expected "
            f"{-layers} to -1, or null for the model's output"
        )
    return kept


def shape_of(config: "PretrainedConfig") -> TowerShape:
    """Return the sizes of a tower with this config.

    Raises:
        ValueError: images or patches are not square.
    """
    patch = _edge(config, "patch_size")
    if config.model_type == "siglip2_vision_model":  # takes any number of patches; this is the number of its training
        edge = int(config.num_patches**0.5)
        return TowerShape(edge * patch, edge * edge, config.hidden_size)
    size = _edge(config, "image_size")
    return TowerShape(size, (size // patch) ** 2, config.hidden_size)


def _edge(config: "PretrainedConfig", key: str) -> int:
    value = getattr(config, key)
    edges = {value} if isinstance(value, int) else set(value)
    if len(edges) != 1:
        raise ValueError(f"vision_tower: {key} of the model is {value}; expected a square")
    return edges.pop()


def load_tower(settings: VisionTowerSettings, config: "PretrainedConfig", dtype: torch.dtype) -> "PreTrainedModel":
    """Load or build the network, without the parts that its features do not depend on.

    Raises:
        ValueError: its files lack weights that it needs.
    """
    from transformers import AutoModel

    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa"}
    missing: set[str] = set()
    if settings.path is None:
        network = build(_SECTION, AutoModel.from_config, config, **options)
    else:
        options.update(config=config, output_loading_info=True)
        with _without_report():
            network, loading_info = read_pretrained(_SECTION, AutoModel, settings.path, **options)
        # Compared below with what remains: a pooler or a head that the files lack does not matter if it is dropped.
        missing = set(loading_info["missing_keys"])
    if hasattr(network, "pooler"):
        network.pooler = None
    if getattr(network.embeddings, "mask_token", None) is not None:  # for masked-image pretraining
        network.embeddings.mask_token = None
    if settings.feature_layer is not None or config.model_type in _NORM_IN_POOLER_ALONE:
        # Features of an inner layer are not normalised, as in LLaVA; CLIP normalises the pooled token alone.
        setattr(network, KINDS[config.model_type].norm, nn.Identity())
    lacking = missing & network.state_dict().keys()  # transformers gives them random values
    if lacking:
        raise ValueError(f"vision_tower.path: {settings.path} lacks {preview_names(lacking)}: is it whole?")
    return network


@contextmanager
def _without_report() -> Iterator[None]:
    """Silence transformers, which lists every unused weight of a text model or a head, and every unsharded layer."""
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
    """Return the number of tokens before the patches: class, distillation and register tokens."""
    return KINDS[config.model_type].own_tokens + getattr(config, "num_register_tokens", 0)


def normalisation_of(settings: VisionTowerSettings, config: "PretrainedConfig") -> Normalisation:
    """Return the normalisation from the file beside the weights, else the architecture's default."""
    mean, deviation = KINDS[config.model_type].normalisation
    settings_of_file = _preprocessor(settings.path) if settings.path is not None else {}
    # A preprocessor without normalisation gives the tower its pixels as they are.
    if not settings_of_file.get("do_normalize", True):
        mean, deviation = (0.0,) * 3, (1.0,) * 3
    rescaled = settings_of_file.get("do_rescale", True)
    scale = settings_of_file.get("rescale_factor", 1 / 255) if rescaled else 1.0
    mean, deviation = settings_of_file.get("image_mean") or mean, settings_of_file.get("image_std") or deviation
    return Normalisation(scale, tuple(mean), tuple(deviation))


def _preprocessor(path: str) -> dict[str, Any]:
    local = Path(path).expanduser()
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = local / name if local.is_dir() else _hub_file(path, name)
        if file is not None and file.is_file():
            # A processor of images and text nests the settings of its image processor.
            content = json.loads(file.read_text(encoding="utf-8"))
            return content.get("image_processor", content)
    return {}


def _hub_file(path: str, name: str) -> Path | None:
    from transformers.utils import cached_file

    file = cached_file(
        path,
        name,
        local_files_only=hub_unreachable_reason() is not None,
        # The file is optional: the architecture's defaults replace it.
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)
