"""Exports as the classes of LLaVA: one view of an image, or a view of the whole and its tiles."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import nn
from typing_extensions import override

from lightning_modules.multimodal.export.export_target import (
    ExportTarget,
    ModelParts,
    has_tied_embeddings,
    image_normalization,
    load_tower_weights,
    tower_incompatibilities,
)
from lightning_modules.multimodal.export.vision_weights import siglip_config, tower_weights
from lightning_modules.multimodal.vision.vision_tower import VisionTower

_UNUSED_WEIGHTS = ("post_layernorm", "layernorm", "norm", "pooler", "head", "embeddings.mask_token")
"""Weights that no feature depends on: the exported tower has them, with random values."""

_NORMALIZES_OUTPUT = ("dinov2", "dinov3_vit")
"""Towers whose output has a norm that LLaVA's classes do not apply."""


class Llava(ExportTarget):
    """LlavaForConditionalGeneration: the features of a square view."""

    name, class_name, tag = "Llava", "LlavaForConditionalGeneration", "llava"

    @override
    def incompatibilities(self, parts: ModelParts) -> Iterator[str]:
        yield from self._check_tower(parts)
        yield from self._check_tiling(parts)
        yield from self._check_projector(parts)

    def _check_tower(self, parts: ModelParts) -> Iterator[str]:
        tower = parts.tower
        if tower.num_prefix_tokens > 1:
            yield f"vision_tower: {tower.num_prefix_tokens} tokens precede the patches, {self.name} skips one at most"
        elif tower.network.config.model_type in _NORMALIZES_OUTPUT and tower.settings.feature_layer is None:
            yield (
                f"vision_tower.feature_layer: null is the output after the last norm, {self.name} reads a "
                f"{tower.network.config.model_type} before it; train with -1 or -2"
            )
        yield from tower_incompatibilities(parts, self.name)

    def _check_tiling(self, parts: ModelParts) -> Iterator[str]:
        if parts.layout.max_tiles > 1:
            yield (
                "data.init_args.max_tiles: Llava splits no images; LlavaNext does: train on ImageChats with "
                "data.init_args.tiling llava_next"
            )

    def _check_projector(self, parts: ModelParts) -> Iterator[str]:
        settings, width = parts.projector.settings, parts.language_model.hidden_size
        if settings.kind != "mlp":
            yield f"projector.kind: {settings.kind}, {self.name} has mlp alone"
            return
        if settings.layer_norm:
            yield f"projector.layer_norm: {self.name}'s projector ends without one"
        if settings.hidden_size not in (None, width):
            yield (f"projector.hidden_size: {settings.hidden_size}, {self.name}'s is the language model's, {width}")

    @override
    def build_model(self, parts: ModelParts) -> Any:
        from transformers import AutoModel

        config = self._config(parts)
        with torch.device("meta"):  # its own weights are replaced
            model = self._model(config)
        causal = parts.language_model.causal_lm
        tower = AutoModel.from_config(config.vision_config)
        model.model.vision_tower = load_tower_weights(tower, tower_weights(parts.tower), parts.tower, _UNUSED_WEIGHTS)
        # An `mlp` has two linear layers, with GELU and dropout, which export drops, between them.
        linear = [layer for layer in parts.projector.layers if isinstance(layer, nn.Linear)]
        model.model.multi_modal_projector.linear_1, model.model.multi_modal_projector.linear_2 = linear
        model.model.language_model = causal.get_decoder()
        model.lm_head = causal.get_output_embeddings()
        return model.eval()

    def _model(self, config: Any) -> Any:
        from transformers import LlavaForConditionalGeneration

        return LlavaForConditionalGeneration(config)

    def _config(self, parts: ModelParts) -> Any:
        from transformers import LlavaConfig

        return LlavaConfig(**self._settings(parts))

    def _settings(self, parts: ModelParts) -> dict[str, Any]:
        # Otherwise Llava uses the output of the last layer before the norm.
        tied = {"tie_last_hidden_states": parts.tower.settings.feature_layer is None}
        return {
            "vision_config": {**siglip_config(parts.tower), **tied},
            "text_config": parts.language_model.causal_lm.config.to_dict(),
            "tie_word_embeddings": has_tied_embeddings(parts),
            "image_token_index": parts.placeholder,
            "image_seq_length": parts.layout.tokens,
            "projector_hidden_act": "gelu",
            "vision_feature_select_strategy": _strategy(parts.tower),
            "vision_feature_layer": -1,  # the last layer that was built
        }

    @override
    def processor(self, parts: ModelParts) -> Any:
        from transformers import LlavaProcessor

        return LlavaProcessor(**self._processor_settings(parts))

    def _processor_settings(self, parts: ModelParts) -> dict[str, Any]:
        return {
            "image_processor": self.image_processor(parts),
            "tokenizer": parts.tokenizer,
            "patch_size": parts.tower.network.config.patch_size,
            "vision_feature_select_strategy": _strategy(parts.tower),
            "num_additional_image_tokens": parts.tower.num_prefix_tokens,
            "image_token": parts.tokenizer.convert_ids_to_tokens(parts.placeholder),
            "chat_template": parts.tokenizer.chat_template,
        }

    @override
    def image_processor(self, parts: ModelParts) -> Any:
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
        from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
        from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

        numbers, edge = image_normalization(parts), parts.layout.size
        square = {"height": edge, "width": edge}
        # The PIL variants: training resizes by PIL as well, and torchvision need not be installed.
        if parts.resize_mode == "pad":
            return LlavaImageProcessorPil(size=square, do_pad=True, do_center_crop=False, **numbers)
        if parts.resize_mode == "crop":
            return CLIPImageProcessorPil(size={"shortest_edge": edge}, crop_size=square, **numbers)
        return SiglipImageProcessorPil(size=square, **numbers)


class LlavaNext(Llava):
    """LlavaNextForConditionalGeneration: a view of the whole and its tiles, with learned line ends."""

    name, class_name, tag = "LlavaNext", "LlavaNextForConditionalGeneration", "llava_next"

    @override
    def _check_tiling(self, parts: ModelParts) -> Iterator[str]:
        return iter(())

    @override
    def build_model(self, parts: ModelParts) -> Any:
        model = super().build_model(parts)
        assert parts.learned is not None, "the tiling has a learned vector"
        # A copy: the parameter of the class has no other rows.
        model.model.image_newline = nn.Parameter(parts.learned.weight[0].detach().clone())
        return model

    @override
    def _model(self, config: Any) -> Any:
        from transformers.models.llava_next.modeling_llava_next import LlavaNextForConditionalGeneration

        return LlavaNextForConditionalGeneration(config)

    @override
    def _config(self, parts: ModelParts) -> Any:
        from transformers.models.llava_next.configuration_llava_next import LlavaNextConfig

        return LlavaNextConfig(**self._settings(parts), image_grid_pinpoints=parts.layout.grid_resolutions)

    @override
    def processor(self, parts: ModelParts) -> Any:
        from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

        return LlavaNextProcessor(**self._processor_settings(parts))

    @override
    def image_processor(self, parts: ModelParts) -> Any:
        from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil

        square = {"height": parts.layout.size, "width": parts.layout.size}
        return LlavaNextImageProcessorPil(
            size=square,
            crop_size=square,
            do_center_crop=False,
            image_grid_pinpoints=parts.layout.grid_resolutions,
            **image_normalization(parts),
        )


def _strategy(tower: VisionTower) -> Literal["default", "full"]:
    # "default" drops the first token, a class token; "full" keeps all.
    return "default" if tower.num_prefix_tokens else "full"
