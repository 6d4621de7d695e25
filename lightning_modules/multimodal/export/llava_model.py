"""Assembles a LlavaForConditionalGeneration of transformers from the networks of a trained model."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import nn

from datamodules.multimodal.batch import ImageLayout
from lightning_modules.multimodal.connector.projector import Projector
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.vision.vision_tower import VisionTower

if TYPE_CHECKING:
    from transformers import LlavaConfig, LlavaForConditionalGeneration, PreTrainedModel, PreTrainedTokenizerFast

_UNUSED_WEIGHTS = ("post_layernorm", "layernorm", "norm", "pooler", "head", "embeddings.mask_token")
"""Weights of a tower that its features do not depend on. transformers builds them in any case."""


class Parts(NamedTuple):
    """Networks and settings of a Llava."""

    tower: VisionTower
    projector: Projector
    language_model: LanguageModel
    layout: ImageLayout
    placeholder: int  # token that a feature replaces
    fit: Literal["stretch", "pad", "crop"] = "stretch"  # how an image becomes a square


def assembled(parts: Parts) -> "LlavaForConditionalGeneration":
    """Return the model of transformers. It shares the projector and the language model with `parts`."""
    from transformers import LlavaForConditionalGeneration

    config = _config(parts)
    with torch.device("meta"):  # its own weights are replaced
        model = LlavaForConditionalGeneration(config)
    causal = parts.language_model.causal_lm
    model.model.vision_tower = _tower(parts.tower, config.vision_config)
    linear = [layer for layer in parts.projector.layers if isinstance(layer, nn.Linear)]
    model.model.multi_modal_projector.linear_1, model.model.multi_modal_projector.linear_2 = linear
    model.model.language_model = causal.get_decoder()
    model.lm_head = causal.get_output_embeddings()
    return model.eval()


def processor(parts: Parts, tokenizer: "PreTrainedTokenizerFast") -> Any:
    """Return a LlavaProcessor that prepares images and texts as the DataModules do."""
    from transformers import LlavaProcessor

    return LlavaProcessor(
        image_processor=image_processor(parts),
        tokenizer=tokenizer,
        patch_size=parts.tower.network.config.patch_size,
        vision_feature_select_strategy=_strategy(parts.tower),
        num_additional_image_tokens=parts.tower.own_tokens,
        image_token=tokenizer.convert_ids_to_tokens(parts.placeholder),
        chat_template=tokenizer.chat_template,
    )


def image_processor(parts: Parts) -> Any:
    """Return an image processor that computes the same pixels as the DataModules. It needs no torchvision."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    (scale, mean, deviation), edge = parts.tower.normalisation, parts.layout.size
    numbers = {"rescale_factor": scale, "image_mean": list(mean), "image_std": list(deviation)}
    square = {"height": edge, "width": edge}
    if parts.fit == "pad":
        return LlavaImageProcessorPil(size=square, do_pad=True, do_center_crop=False, **numbers)
    if parts.fit == "crop":
        return CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size=square, **numbers)
    return SiglipImageProcessorPil(size=square, **numbers)


def _config(parts: Parts) -> "LlavaConfig":
    from transformers import LlavaConfig

    tower = parts.tower.network.config.to_dict()
    for key in ("out_features", "out_indices", "stage_names"):  # they may name layers that were not built
        tower.pop(key, None)
    # Otherwise Llava uses the output of the last layer before the norm.
    tower["tie_last_hidden_states"] = parts.tower.settings.feature_layer is None
    return LlavaConfig(
        vision_config=tower,
        text_config=parts.language_model.causal_lm.config.to_dict(),
        image_token_index=parts.placeholder,
        image_seq_length=parts.layout.tokens,
        projector_hidden_act="gelu",
        vision_feature_select_strategy=_strategy(parts.tower),
        vision_feature_layer=-1,  # the last layer that was built
    )


def _strategy(tower: VisionTower) -> Literal["default", "full"]:
    return "default" if tower.own_tokens else "full"


def _tower(tower: VisionTower, config: Any) -> "PreTrainedModel":
    """Return the tower as transformers builds it, with the trained weights."""
    from transformers import AutoModel

    network = AutoModel.from_config(config)
    result = network.load_state_dict(tower.network.state_dict(), strict=False)
    lacking = [name for name in result.missing_keys if not name.startswith(_UNUSED_WEIGHTS)]
    if lacking or result.unexpected_keys:
        raise ValueError(f"vision_tower: {type(network).__name__} lacks or does not know {lacking or result[1]}")
    return network.to(next(tower.network.parameters()).dtype)


def weight_format(language_model: LanguageModel) -> torch.dtype:
    """Return the number format of all weights, as transformers reads them in one: the language model's."""
    mixed = language_model.settings.trainable == "last_n_layers"
    return language_model.precision.trained if mixed else language_model.causal_lm.dtype
