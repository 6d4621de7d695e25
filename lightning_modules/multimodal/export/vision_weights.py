"""Converts SigLIP 2 towers, which read patches, to SigLIP towers, which read images and compute the same."""

from typing import Any

from torch import Tensor

from lightning_modules.multimodal.vision.vision_tower import VisionTower

SIGLIP, SIGLIP2 = "siglip_vision_model", "siglip2_vision_model"

SIGLIP_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels", "patch_size",
    "hidden_act", "layer_norm_eps", "attention_dropout",
)  # fmt: skip
"""Keys of a SigLIP's config without its image size."""

_PATCHES = "embeddings.patch_embedding.weight"


def siglip_config(tower: VisionTower) -> dict[str, Any]:
    """Return the config of a tower that reads images: the tower's own, or SigLIP's for a SigLIP 2."""
    config = tower.network.config
    if config.model_type == SIGLIP2:
        # A SigLIP 2 takes images of any size. A SigLIP has a fixed size: that of the training's images.
        sizes = {key: getattr(config, key) for key in SIGLIP_KEYS}
        return {"model_type": SIGLIP, **sizes, "image_size": tower.shape.image_size, "vision_use_head": False}
    content = config.to_dict()
    for key in ("out_features", "out_indices", "stage_names"):  # they may name layers that were not built
        content.pop(key, None)
    return content


def tower_weights(tower: VisionTower) -> dict[str, Tensor]:
    """Return the weights of a tower that reads images, by their names in its class."""
    weights = dict(tower.network.state_dict())
    config = tower.network.config
    if config.model_type == SIGLIP2:
        # A pixel of a patch has its channels side by side; a convolution has them in separate planes.
        # [C, patch * patch * 3] -> [C, 3, patch, patch]
        linear, patch = weights[_PATCHES], config.patch_size
        weights[_PATCHES] = linear.unflatten(1, (patch, patch, -1)).permute(0, 3, 1, 2).contiguous()
    return weights


def own_weights(tower: VisionTower, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights by their names in the tower's network: the inverse of `tower_weights`."""
    if tower.network.config.model_type == SIGLIP2:
        # [C, 3, patch, patch] -> [C, patch * patch * 3]
        return {**weights, _PATCHES: weights[_PATCHES].permute(0, 2, 3, 1).flatten(1).contiguous()}
    return weights
