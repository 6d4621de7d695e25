"""Lists the vision transformers that can be a tower, and reads their sizes from a config of transformers."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class PixelStatistics(NamedTuple):
    """Statistics of the RGB channels, for pixels in [0, 1]."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


_CLIP = PixelStatistics((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
_IMAGENET = PixelStatistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_UNIT_RANGE = PixelStatistics((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""Maps pixels to [-1, 1]."""


class TowerKind(NamedTuple):
    """Structure of the models of a `model_type` of transformers: where its layers and its norm are."""

    layers: str
    """Name of the submodule with the layers."""
    norm: str
    """Name of the submodule with the norm after the last layer."""
    num_prefix_tokens: int
    """Number of class and distillation tokens before the patches."""
    pixel_statistics: PixelStatistics
    """Statistics of the training, used if a model's files have none."""
    normalizes_output: bool = True
    """Whether the norm applies to the last hidden state, and not to the pooled token alone."""


KINDS = {
    "siglip_vision_model": TowerKind("encoder.layers", "post_layernorm", 0, _UNIT_RANGE),
    "siglip2_vision_model": TowerKind("encoder.layers", "post_layernorm", 0, _UNIT_RANGE),
    "clip_vision_model": TowerKind("encoder.layers", "post_layernorm", 1, _CLIP, normalizes_output=False),
    "dinov2": TowerKind("encoder.layer", "layernorm", 1, _IMAGENET),
    "dinov2_with_registers": TowerKind("encoder.layer", "layernorm", 1, _IMAGENET),
    "dinov3_vit": TowerKind("model.layer", "norm", 1, _IMAGENET),
    "vit": TowerKind("layers", "layernorm", 1, _UNIT_RANGE),
    "deit": TowerKind("layers", "layernorm", 2, _IMAGENET),
}


class TowerShape(NamedTuple):
    """Sizes of a tower's images and features."""

    image_size: int
    """Pixels along each edge of an image."""
    patches: int
    """Number of features of an image."""
    output_size: int
    """Width of a feature."""


def read_tower_shape(config: "PretrainedConfig") -> TowerShape:
    """Return the sizes of a tower with this config.

    Raises:
        ValueError: images or patches are not square.
    """
    patch = _square_edge(config, "patch_size")
    if config.model_type == "siglip2_vision_model":  # takes any number of patches; this is the number of its training
        edge = int(config.num_patches**0.5)
        return TowerShape(edge * patch, edge * edge, config.hidden_size)
    size = _square_edge(config, "image_size")
    return TowerShape(size, (size // patch) ** 2, config.hidden_size)


def _square_edge(config: "PretrainedConfig", key: str) -> int:
    value = getattr(config, key)
    edges = {value} if isinstance(value, int) else set(value)
    if len(edges) != 1:
        raise ValueError(f"vision_tower: {key} of the model is {value}; expected a square")
    return edges.pop()


def num_prefix_tokens(config: "PretrainedConfig") -> int:
    """Return the number of tokens before the patches: class, distillation and register tokens."""
    return KINDS[config.model_type].num_prefix_tokens + getattr(config, "num_register_tokens", 0)
