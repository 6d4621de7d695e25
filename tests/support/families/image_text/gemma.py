"""Builds configs and processors of tiny PaliGemma and Gemma 3 models."""

from typing import Any

from tests.support.families.image_text.chat_templates import GEMMA
from tests.support.families.image_text.sizes import TEXT, TOWER
from tests.support.families.image_text.tokens import token_ids, tokenizer


def paligemma() -> tuple[Any, Any]:
    from transformers import PaliGemmaConfig, PaliGemmaProcessor, SiglipImageProcessorPil

    tokens = tokenizer([], "<eos>", "<bos>", None, image_token="<image>")
    images = SiglipImageProcessorPil(size={"height": 28, "width": 28})
    images.image_seq_length = 4
    processor = PaliGemmaProcessor(images, tokens)
    config = PaliGemmaConfig(
        vision_config={"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False, "projection_dim": 16},
        text_config={"model_type": "gemma", **TEXT, **token_ids(tokens), "head_dim": 8},
        image_token_index=tokens.image_token_id,
        image_token_id=tokens.image_token_id,
        projection_dim=16,
        hidden_size=16,
        vocab_size=len(tokens),
        pad_token_id=tokens.pad_token_id,
        bos_token_id=tokens.bos_token_id,
        eos_token_id=tokens.eos_token_id,
    )
    return config, processor


def gemma3() -> tuple[Any, Any]:
    from transformers import Gemma3Config, Gemma3ImageProcessorPil, Gemma3Processor

    tokens = tokenizer(
        ["<start_of_turn>", "<end_of_turn>"],
        "<end_of_turn>",
        "<bos>",
        GEMMA,
        image_token="<image_soft_token>",
        boi_token="<start_of_image>",
        eoi_token="<end_of_image>",
    )
    images = Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
    config = Gemma3Config(
        vision_config={"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False},
        text_config={**TEXT, **token_ids(tokens), "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
        mm_tokens_per_image=4,
        image_token_index=tokens.image_token_id,
        image_token_id=tokens.image_token_id,
        boi_token_index=tokens.boi_token_id,
        eoi_token_index=tokens.eoi_token_id,
    )
    return config, Gemma3Processor(images, tokens, image_seq_length=4, chat_template=GEMMA)
