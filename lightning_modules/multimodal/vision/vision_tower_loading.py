"""Builds a vision transformer of transformers from its settings.

transformers takes seconds to import, so it is imported when a tower is built.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lightning_modules.multimodal.language.transformers_loading import (
    build,
    config_of,
    preview_names,
    read_pretrained,
    require_local_files,
    switch_off_dropout,
)
from lightning_modules.multimodal.vision.architectures import KINDS
from lightning_modules.multimodal.vision.settings import VisionTowerSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_SECTION = "vision_tower"


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
    config.num_hidden_layers = _num_built_layers(settings.feature_layer, config.num_hidden_layers)
    return config


def _num_built_layers(feature_layer: int | None, layers: int) -> int:
    """Return the number of layers up to the features, of a model with `layers` layers."""
    if feature_layer is None:
        return layers
    # transformers counts the embeddings as hidden state 0, so `layers` layers have layers + 1 states.
    num_built = feature_layer if feature_layer >= 0 else layers + 1 + feature_layer
    if not 1 <= num_built <= layers:
        raise ValueError(
            f"vision_tower.feature_layer is {feature_layer}, but the model has {layers} layers: expected "
            f"{-layers} to -1, or null for the model's output"
        )
    return num_built


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
    kind = KINDS[config.model_type]
    if settings.feature_layer is not None or not kind.normalizes_output:
        # Features of an inner layer are not normalized, as in LLaVA; CLIP normalizes the pooled token alone.
        setattr(network, kind.norm, nn.Identity())
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
