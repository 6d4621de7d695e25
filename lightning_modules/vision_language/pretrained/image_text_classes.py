"""Describes classes of pretrained image-text models: where their parts are, which positions and masks they allow."""

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_BOTH_WAYS = "its images are attended to in both directions"


class ImageTextClass(NamedTuple):
    """Structure of a class of transformers; names are of submodules of its `model`."""

    title: str
    """Name in messages and model cards."""
    vision_tower: str
    """Submodule that encodes images."""
    connector: tuple[str, ...]
    """Submodules that project features of images to embeddings; they may be inside the vision tower."""
    spatial: bool = False
    """Whether positions have a row and a column (M-RoPE)."""
    token_types: bool = False
    """Whether the attention mask depends on the kinds of tokens."""
    packing_obstacle: str | None = None
    """Why chats cannot share a row; None if they can."""


_LLAVA = ("vision_tower", ("multi_modal_projector",))

CLASSES = {
    "llava": ImageTextClass("LLaVA 1.5", *_LLAVA),
    "llava_next": ImageTextClass("LLaVA-NeXT", "vision_tower", ("multi_modal_projector", "image_newline")),
    "llava_onevision": ImageTextClass("LLaVA-OneVision", "vision_tower", ("multi_modal_projector", "image_newline")),
    "qwen2_vl": ImageTextClass("Qwen2-VL", "visual", ("visual.merger",), spatial=True),
    "qwen2_5_vl": ImageTextClass("Qwen2.5-VL", "visual", ("visual.merger",), spatial=True),
    "qwen3_vl": ImageTextClass("Qwen3-VL", "visual", ("visual.merger", "visual.deepstack_merger_list"), spatial=True),
    "internvl": ImageTextClass("InternVL", *_LLAVA),
    "idefics3": ImageTextClass("Idefics3", "vision_model", ("connector",)),
    "smolvlm": ImageTextClass("SmolVLM", "vision_model", ("connector",)),
    "paligemma": ImageTextClass(
        "PaliGemma", *_LLAVA, token_types=True, packing_obstacle="its questions are attended to in both directions"
    ),
    "gemma3": ImageTextClass("Gemma 3", *_LLAVA, token_types=True, packing_obstacle=_BOTH_WAYS),
}
"""{model_type of transformers: structure}"""


def find_image_text_class(path: str, config: "PretrainedConfig") -> ImageTextClass:
    """Return the class of a pretrained model.

    Raises:
        ValueError: it is not one of CLASSES; the message names what was found.
    """
    kind = CLASSES.get(config.model_type)
    if kind is None:
        architecture = ", ".join(getattr(config, "architectures", None) or ["unknown"])
        titles = ", ".join(each.title for each in CLASSES.values())
        raise ValueError(
            f"model.init_args.path: {path} is a {architecture} (model_type {config.model_type}), expected an "
            f"image-text model of transformers: {titles}. For a vision tower and a language model of your choice, use "
            "VisionLanguageModel"
        )
    return kind


def part_weights(network: "PreTrainedModel", kind: ImageTextClass) -> dict[str, list[nn.Parameter]]:
    """Return the weights of vision tower, connector and language model. Each weight belongs to one part."""
    # The connector first: Qwen2-VL and its successors have it inside the vision tower.
    connector = [weight for name in kind.connector for weight in _weights_of_part(network, name)]
    owned = set(connector)
    tower = [weight for weight in _weights_of_part(network, kind.vision_tower) if weight not in owned]
    owned.update(tower)
    others = [weight for weight in network.parameters() if weight not in owned]
    return {"vision_tower": tower, "connector": connector, "language_model": others}


def unused_weights(network: "PreTrainedModel", kind: ImageTextClass) -> list[nn.Parameter]:
    """Return the weights of the vision tower that no feature depends on: layers and norms after the chosen layer."""
    tower = network.base_model.get_submodule(kind.vision_tower)
    unused = [weight for name in ("head", "vision_model.head") for weight in _weights_of(tower, name)]
    # Weights behind the chosen layer would get no gradient, and DDP would wait for it.
    feature_layers = getattr(network.config, "vision_feature_layer", None)
    layers = next((part for name, part in tower.named_modules() if name.endswith(("layers", "layer"))), None)
    if feature_layers is None or layers is None:
        return unused
    depth = len(list(layers.children()))
    # Several layers may be chosen (LLaVA-NeXT joins them); hidden state 0 is the embeddings, hence depth + 1.
    last = max(
        index if index >= 0 else depth + 1 + index
        for index in ([feature_layers] if isinstance(feature_layers, int) else feature_layers)
    )
    unused += [weight for layer in list(layers.children())[last:] for weight in layer.parameters()]
    if last == depth and _normalizes_last_features(network, tower):
        return unused
    return unused + [weight for name in ("post_layernorm", "layernorm") for weight in _weights_of(tower, name)]


def _normalizes_last_features(network: "PreTrainedModel", tower: nn.Module) -> bool:
    """Return whether the features of the last layer pass the tower's last norm."""
    if network.config.model_type == "internvl" and network.config.vision_feature_layer == -1:
        return True  # it takes the tower's output
    # transformers replaces the last hidden state by the output, in directories that Lockstep exported for example.
    return bool(getattr(tower.config, "tie_last_hidden_states", None))


def _weights_of_part(network: "PreTrainedModel", name: str) -> list[nn.Parameter]:
    return _weights_of(network.base_model, name)


def _weights_of(network: nn.Module, name: str) -> list[nn.Parameter]:
    """Return the weights of a submodule, or the weight of this name; none if there is none."""
    part_or_weight: object = network
    for part in name.split("."):
        part_or_weight = getattr(part_or_weight, part, None)
    if isinstance(part_or_weight, nn.Parameter):
        return [part_or_weight]
    return list(part_or_weight.parameters()) if isinstance(part_or_weight, nn.Module) else []
