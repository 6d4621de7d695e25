"""Directories of tiny image-text models with random weights, one for each class that the fine-tuning supports."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from datamodules.vision_language.pretrained.processor_loading import without_videos

PAD, END = "<|endoftext|>", "<|im_end|>"
_TEXTS = [
    "user assistant system USER ASSISTANT User Assistant model: what colour is the square? red green blue 1 2 3\n"
]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ 'IMAGE' }}{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN = CHATML.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
IDEFICS = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{%- for message in messages -%}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<start_of_turn>' + role + '\n' }}"
    "{%- if message['content'] is string -%}{{ message['content'] | trim }}{%- else -%}"
    "{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}<start_of_image>{%- else -%}{{ part['text'] | trim }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)


def tokenizer(special: list[str], eos: str, bos: str | None = None, template: str | None = None, **named: str) -> Any:
    """A byte-level tokenizer with these special tokens; `named` become attributes such as `image_token`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = list(dict.fromkeys([PAD, eos, *([bos] if bos else []), *special, *named.values()]))
    trainer = trainers.BpeTrainer(
        vocab_size=256 + len(special) + 40,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(_TEXTS * 3, trainer)
    if bos and template is not GEMMA:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=eos,
        bos_token=bos,
        extra_special_tokens=named,
        additional_special_tokens=special,
        chat_template=template,
    )


TEXT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 24,
    "initializer_range": 0.3,  # far from uniform, so that a difference shows
}
TOWER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 28,
    "patch_size": 14,
    "initializer_range": 0.3,
}


def _ids(tokens: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokens),
        "pad_token_id": tokens.pad_token_id,
        "eos_token_id": tokens.eos_token_id,
        "bos_token_id": tokens.bos_token_id,
    }


def llava() -> tuple[Any, Any]:
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaProcessor

    tokens = tokenizer([], "</s>", "<s>", LLAVA, image_token="<image>")
    images = CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **TOWER},
        text_config={"model_type": "llama", **TEXT, **_ids(tokens)},
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
        text_config={"model_type": "llama", **TEXT, **_ids(tokens)},
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
        text_config={"model_type": "qwen2", **TEXT, **_ids(tokens)},
        image_token_index=tokens.image_token_id,
        video_token_index=tokens.video_token_id,
        image_grid_pinpoints=grid,
    )
    processor = without_videos(LlavaOnevisionProcessor)(
        images, tokens, None, num_image_tokens=4, vision_feature_select_strategy="full", chat_template=template
    )
    return config, processor


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
    return {**TEXT, **_ids(tokens), "head_dim": 8, "rope_parameters": rope}


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
        text_config={"model_type": "qwen2", **TEXT, **_ids(tokens)},
        image_token_id=tokens.context_image_token_id,
        image_seq_length=1,
        tie_word_embeddings=False,
    )
    return config, without_videos(InternVLProcessor)(images, tokens, None, image_seq_length=1, chat_template=template)


_ROWS = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


def idefics3() -> tuple[Any, Any]:
    from transformers import Idefics3Config, Idefics3ImageProcessorPil, Idefics3Processor

    special = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>", "<|im_start|>", *_ROWS]
    tokens = tokenizer(special, "<end_of_utterance>", None, IDEFICS)
    images = Idefics3ImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    config = Idefics3Config(
        vision_config=TOWER,
        text_config={"model_type": "llama", **TEXT, **_ids(tokens)},
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
        text_config={"model_type": "llama", **TEXT, **_ids(tokens)},
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokens.pad_token_id,
    )
    return config, without_videos(SmolVLMProcessor)(images, tokens, None, image_seq_len=1, chat_template=IDEFICS)


def paligemma() -> tuple[Any, Any]:
    from transformers import PaliGemmaConfig, PaliGemmaProcessor, SiglipImageProcessorPil

    tokens = tokenizer([], "<eos>", "<bos>", None, image_token="<image>")
    images = SiglipImageProcessorPil(size={"height": 28, "width": 28})
    images.image_seq_length = 4
    processor = PaliGemmaProcessor(images, tokens)
    config = PaliGemmaConfig(
        vision_config={"model_type": "siglip_vision_model", **TOWER, "vision_use_head": False, "projection_dim": 16},
        text_config={"model_type": "gemma", **TEXT, **_ids(tokens), "head_dim": 8},
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
        text_config={**TEXT, **_ids(tokens), "head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8},
        mm_tokens_per_image=4,
        image_token_index=tokens.image_token_id,
        image_token_id=tokens.image_token_id,
        boi_token_index=tokens.boi_token_id,
        eoi_token_index=tokens.eoi_token_id,
    )
    return config, Gemma3Processor(images, tokens, image_seq_length=4, chat_template=GEMMA)


CLASSES: dict[str, Callable[[], tuple[Any, Any]]] = {
    built.__name__: built
    for built in (
        llava,
        llava_next,
        llava_onevision,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        internvl,
        idefics3,
        smolvlm,
        paligemma,
        gemma3,
    )
}


def write_tiny_image_text(name: str, folder: Path) -> Path:
    """Write the directory of a tiny model: weights, config and processor, as save_pretrained does."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(7)
    config, processor = CLASSES[name]()
    model = AutoModelForImageTextToText.from_config(config)
    model.generation_config.eos_token_id = config.get_text_config().eos_token_id
    model.generation_config.pad_token_id = config.get_text_config().pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
