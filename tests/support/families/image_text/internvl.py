"""Builds the config and the processor of a tiny InternVL model."""

from typing import Any

from datamodules.vision_language.pretrained.processor_loading import without_videos
from tests.support.families.image_text.chat_templates import CHATML
from tests.support.families.image_text.sizes import TEXT, TOWER
from tests.support.families.image_text.tokens import END, token_ids, tokenizer


def internvl() -> tuple[Any, Any]:
    from transformers import GotOcr2ImageProcessorPil, InternVLConfig, InternVLProcessor

    template = CHATML.replace("IMAGE", "<IMG_CONTEXT>\\n")
    tokens = tokenizer(
        ["<|im_start|>"],
        END,
        None,
        template,
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    images = GotOcr2ImageProcessorPil(
        size={"height": 28, "width": 28}, crop_to_patches=True, min_patches=1, max_patches=2
    )
    config = InternVLConfig(
        vision_config={**TOWER, "image_size": [28, 28], "patch_size": [14, 14], "layer_scale_init_value": 1.0},
        text_config={"model_type": "qwen2", **TEXT, **token_ids(tokens)},
        image_token_id=tokens.context_image_token_id,
        image_seq_length=1,
        tie_word_embeddings=False,
    )
    return config, without_videos(InternVLProcessor)(images, tokens, None, image_seq_length=1, chat_template=template)
