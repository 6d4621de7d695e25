"""Builds configs and processors of tiny LLaVA, LLaVA-NeXT and LLaVA-OneVision models."""

from typing import Any

from datamodules.vision_language.pretrained.processor_loading import without_videos
from tests.support.families.image_text.chat_templates import CHATML, LLAVA
from tests.support.families.image_text.sizes import TEXT, TOWER
from tests.support.families.image_text.tokens import END, token_ids, tokenizer


def llava() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaProcessor

    tokens = tokenizer([], "</s>", "<s>", LLAVA, image_token="<image>")
    images = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **TOWER},
        text_config={"model_type": "llama", **TEXT, **token_ids(tokens)},
        image_token_id=tokens.image_token_id,
        image_token_index=tokens.image_token_id,
        vision_feature_layer=-2,
    )
    processor = LlavaProcessor(
        images,
        tokens,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA,
    )
    return config, processor


def llava_next() -> tuple[Any, Any]:
    from transformers import LlavaNextConfig, LlavaNextImageProcessorPil, LlavaNextProcessor

    tokens = tokenizer([], "</s>", "<s>", LLAVA, image_token="<image>")
    grid = [[28, 56], [56, 28], [56, 56]]
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, image_grid_pinpoints=grid
    )
    config = LlavaNextConfig(
        vision_config={"model_type": "clip_vision_model", **TOWER},
        text_config={"model_type": "llama", **TEXT, **token_ids(tokens)},
        image_token_index=tokens.image_token_id,
        image_grid_pinpoints=grid,
    )
    processor = LlavaNextProcessor(
        images,
        tokens,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA,
    )
    return config, processor


def llava_onevision() -> tuple[Any, Any]:
    from transformers import LlavaOnevisionConfig, LlavaOnevisionImageProcessorPil, LlavaOnevisionProcessor

    template = CHATML.replace("IMAGE", "<image>\\n")
    tokens = tokenizer(["<|im_start|>"], END, None, template, image_token="<image>", video_token="<video>")
    grid = [[28, 28], [28, 56], [56, 28], [56, 56]]
    images = LlavaOnevisionImageProcessorPil(size={"height": 28, "width": 28}, image_grid_pinpoints=grid)
    config = LlavaOnevisionConfig(
        vision_config={"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False},
        text_config={"model_type": "qwen2", **TEXT, **token_ids(tokens)},
        image_token_index=tokens.image_token_id,
        video_token_index=tokens.video_token_id,
        image_grid_pinpoints=grid,
    )
    processor = without_videos(LlavaOnevisionProcessor)(
        images, tokens, None, num_image_tokens=4, vision_feature_select_strategy="full", chat_template=template
    )
    return config, processor
