"""Exports the tokenizer for other programs, with a chat template that takes images."""

import copy
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from datamodules.multimodal.text.chat_encoder import PROMPT_ARGUMENTS, TEMPLATE_ARGUMENTS
from datamodules.multimodal.text.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TAKES_PARTS = (
    "{%- set chat = namespace(turns=[]) -%}"
    "{%- for message in messages -%}"
    "{%- set turn = namespace(text='') -%}"
    "{%- if message['content'] is string -%}{%- set turn.text = message['content'] -%}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- set turn.text = turn.text + (MARKER if part['type'] == 'image' else part['text']) -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- set chat.turns = chat.turns + [dict(message, content=turn.text.replace(MARKER, PLACEHOLDER))] -%}"
    "{%- endfor -%}"
    "{%- set messages = chat.turns -%}"
)
"""Template code that turns a list of content parts, as in transformers, into a text; most templates read texts only."""


def exported_tokenizer(
    tokenizer: ChatTokenizer, marker: str, image_tokens: Sequence[str] = ()
) -> "PreTrainedTokenizerFast":
    """Return a copy of the tokenizer that renders messages as in training, unless arguments override it.

    In a message, an image is the marker in the text, as in training, or a part `{"type": "image"}` of a content list.
    The template alone places special tokens, as in training: a copy that also added them, as the tokenizers of Llama 3
    and Gemma do, would begin a rendered chat with two BOS tokens.

    Args:
        tokenizer: tokenizer of the run.
        marker: marker of an image in the text of a user.
        image_tokens: special tokens for images in place of the placeholder, first the token that the template writes.
    """
    copied = copy.deepcopy(tokenizer.tokenizer)
    defaults = {**TEMPLATE_ARGUMENTS, **PROMPT_ARGUMENTS[0]}
    template = "".join(
        f"{{%- if {name} is not defined -%}}{{%- set {name} = {json.dumps(value)} -%}}{{%- endif -%}}"
        for name, value in defaults.items()
    )
    placeholder = tokenizer.tokenizer.convert_ids_to_tokens(tokenizer.placeholder)
    if image_tokens:
        copied.add_special_tokens({"extra_special_tokens": list(image_tokens)}, replace_extra_special_tokens=False)
        placeholder = image_tokens[0]
    parts = _TAKES_PARTS.replace("MARKER", json.dumps(marker)).replace("PLACEHOLDER", json.dumps(placeholder))
    copied.chat_template = template + parts + tokenizer.tokenizer.chat_template
    copied.pad_token = tokenizer.tokenizer.convert_ids_to_tokens(tokenizer.pad)
    # Generation appends to the right of a prompt. save_pretrained writes init_kwargs, so both are set.
    copied.padding_side = copied.init_kwargs["padding_side"] = "left"
    if any(copied.backend_tokenizer.num_special_tokens_to_add(pair) for pair in (False, True)):
        _add_no_special_tokens(copied)
    return copied


def _add_no_special_tokens(tokenizer: "PreTrainedTokenizerFast") -> None:
    """Switch off the special tokens that a tokenizer adds to a text, in tokenizer.json and tokenizer_config.json.

    Programs differ in which of the two they read, and some classes of transformers rewrite the former from the latter.
    """
    from tokenizers.processors import TemplateProcessing

    tokenizer.add_bos_token = False  # type: ignore[misc]  # The setter does not directly follow the getter.
    tokenizer.add_eos_token = False  # type: ignore[misc]  # As above.
    tokenizer.init_kwargs |= {"add_bos_token": False, "add_eos_token": False}
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
