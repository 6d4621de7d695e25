"""The tokenizer of a run for programs that know nothing of this one: its chat template takes images."""

import copy
import json
from typing import TYPE_CHECKING

from datamodules.multimodal.chat import PROMPT_ARGUMENTS, TEMPLATE_ARGUMENTS
from datamodules.multimodal.tokenizer import ChatTokenizer

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
"""Turns contents that are lists of parts, as transformers has them, into texts; most templates read texts alone."""


def exported_tokenizer(tokenizer: ChatTokenizer, marker: str) -> "PreTrainedTokenizerFast":
    """A copy that makes of messages what our chats are made of, unless it is told otherwise.

    Where an image goes, a message's text has the marker, as in training, or its content is a list with a part
    `{"type": "image"}`.

    Args:
        marker: what stands in a user's text where an image goes.
    """
    copied = copy.deepcopy(tokenizer.tokenizer)
    defaults = {**TEMPLATE_ARGUMENTS, **PROMPT_ARGUMENTS[0]}
    chosen = "".join(
        f"{{%- if {name} is not defined -%}}{{%- set {name} = {json.dumps(value)} -%}}{{%- endif -%}}"
        for name, value in defaults.items()
    )
    placeholder = tokenizer.tokenizer.convert_ids_to_tokens(tokenizer.placeholder)
    parts = _TAKES_PARTS.replace("MARKER", json.dumps(marker)).replace("PLACEHOLDER", json.dumps(placeholder))
    copied.chat_template = chosen + parts + tokenizer.tokenizer.chat_template
    copied.pad_token = tokenizer.tokenizer.convert_ids_to_tokens(tokenizer.pad)
    # Answers are written to the right of their prompts. What is saved are the arguments it was made with.
    copied.padding_side = copied.init_kwargs["padding_side"] = "left"
    return copied
