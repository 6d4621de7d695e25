"""Builds configs and processors of tiny Idefics3 and SmolVLM models."""

from typing import Any

from datamodules.vision_language.pretrained.processor_loading import without_videos
from tests.support.families.image_text.chat_templates import IDEFICS
from tests.support.families.image_text.sizes import TEXT, TOWER
from tests.support.families.image_text.tokens import token_ids, tokenizer

_ROWS = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


def idefics3() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3ImageProcessorPil, Idefics3Processor

    special = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", "<|im_start|>", *_ROWS]
    tokens = tokenizer(special, "<end_of_utterance>", None, IDEFICS)
    images = Idefics3ImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    config = Idefics3Config(
        vision_config=TOWER,
        text_config={"model_type": "llama", **TEXT, **token_ids(tokens)},
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokens.pad_token_id,
    )
    return config, Idefics3Processor(images, tokens, image_seq_len=1, chat_template=IDEFICS)


def smolvlm() -> tuple[Any, Any]:
    from transformers import SmolVLMConfig, SmolVLMImageProcessorPil, SmolVLMProcessor

    special = ["<|im_start|>", "<video>", *_ROWS]
    tokens = tokenizer(
        special,
        "<end_of_utterance>",
        None,
        IDEFICS,
        image_token="<image>",
        global_image_token="<global-img>",
        fake_image_token="<fake_token_around_image>",
        end_of_utterance_token="<end_of_utterance>",
    )
    images = SmolVLMImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    config = SmolVLMConfig(
        vision_config=TOWER,
        text_config={"model_type": "llama", **TEXT, **token_ids(tokens)},
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokens.pad_token_id,
    )
    return config, without_videos(SmolVLMProcessor)(images, tokens, None, image_seq_len=1, chat_template=IDEFICS)
