"""Builds configs and processors of tiny Qwen2-VL, Qwen2.5-VL and Qwen3-VL models."""

from typing import Any

from datamodules.vision_language.pretrained.processor_loading import without_videos
from tests.support.families.image_text.chat_templates import QWEN
from tests.support.families.image_text.sizes import TEXT
from tests.support.families.image_text.tokens import END, token_ids, tokenizer


def _qwen_tokens() -> Any:
    special = ["<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    return tokenizer(special, END, None, QWEN)


def _qwen_ids(tokens: Any) -> dict[str, int]:
    number = tokens.convert_tokens_to_ids
    return {
        "image_token_id": number("<|image_pad|>"),
        "video_token_id": number("<|video_pad|>"),
        "vision_start_token_id": number("<|vision_start|>"),
        "vision_end_token_id": number("<|vision_end|>"),
    }


def _qwen_text(tokens: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    return {**TEXT, **token_ids(tokens), "head_dim": 8, "rope_parameters": rope}


def qwen2_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLConfig, Qwen2VLImageProcessorPil, Qwen2VLProcessor

    tokens = _qwen_tokens()
    images = Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=56 * 56)
    vision = {"depth": 2, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2, "initializer_range": 0.3}
    config = Qwen2VLConfig(text_config=_qwen_text(tokens), vision_config=vision, **_qwen_ids(tokens))
    return config, without_videos(Qwen2VLProcessor)(images, tokens, None, chat_template=QWEN)


def qwen2_5_vl() -> tuple[Any, Any]:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLProcessor, Qwen2VLImageProcessorPil

    tokens = _qwen_tokens()
    images = Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=56 * 56)
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "out_hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 24,
        "fullatt_block_indexes": [1],
        "window_size": 56,
        "initializer_range": 0.3,
    }
    config = Qwen2_5_VLConfig(text_config=_qwen_text(tokens), vision_config=vision, **_qwen_ids(tokens))
    return config, without_videos(Qwen2_5_VLProcessor)(images, tokens, None, chat_template=QWEN)


def qwen3_vl() -> tuple[Any, Any]:
    from transformers import Qwen2VLImageProcessorPil, Qwen3VLConfig, Qwen3VLProcessor

    tokens = _qwen_tokens()
    images = Qwen2VLImageProcessorPil(min_pixels=32 * 32, max_pixels=64 * 64, patch_size=16)
    vision = {
        "depth": 2,
        "hidden_size": 16,
        "out_hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 24,
        "deepstack_visual_indexes": [0],
        "num_position_embeddings": 16,
        "initializer_range": 0.3,
    }
    config = Qwen3VLConfig(text_config=_qwen_text(tokens), vision_config=vision, **_qwen_ids(tokens))
    return config, without_videos(Qwen3VLProcessor)(images, tokens, None, chat_template=QWEN)
