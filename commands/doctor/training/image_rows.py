"""Makes a row of chats with the largest images that fit it, for the predicted memory of an image-text model."""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
from torch import Tensor

from datamodules.multimodal.batch import Chat, TokenRows
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.multimodal.text.packing import pack
from datamodules.vision_language.pretrained.encoded_chat import collate_images
from datamodules.vision_language.pretrained.processor import ModelProcessor
from datamodules.vision_language.pretrained.sample_encoder import ProcessedSampleEncoder

_SIDES = range(56, 2049, 28)
"""Sides of square images that are tried, in pixels."""


class ImageRow(NamedTuple):
    """A full row of chats, and the inputs of its images."""

    rows: TokenRows
    images: dict[str, Tensor]
    num_images: int
    image_tokens: int
    """Tokens of an image."""


def fullest_row(model: ModelProcessor, longest_chat: int, packed_length: int | None = None) -> ImageRow:
    """Return a row of chats about the largest square image that fits a chat, with supervised text in the other places.

    Args:
        model: the processor, which resizes images and gives them tokens.
        longest_chat: most tokens of a chat.
        packed_length: positions of a row of as many chats as fit it; None for a row of one chat.

    Raises:
        ValueError: no image fits a chat.
    """
    tokens = packed_length or longest_chat
    chat, images = _largest_image(model, min(longest_chat, tokens))
    number = tokens // len(chat.tokens) if packed_length else 1
    filler = np.full(tokens - number * len(chat.tokens), model.end_of_text, np.int64)
    chats = [Chat(chat.tokens, chat.tokens != model.image_token, chat.placeholders)] * number
    if packed_length and len(filler):
        chats.append(Chat(filler, np.ones(len(filler), np.bool_), 0))
    elif len(filler):
        longer = np.concatenate([chat.tokens, filler])
        chats = [Chat(longer, longer != model.image_token, chat.placeholders)]
    rows, _ = pack(chats, np.arange(len(chats)), tokens, model.pad)
    return ImageRow(rows, collate_images([images] * number), number, chat.placeholders)


def _largest_image(model: ModelProcessor, longest: int) -> tuple[Chat, dict[str, Tensor]]:
    """Return a chat about the largest image of `_SIDES` whose chat has at most `longest` tokens."""
    fitting = bisect_right(_SIDES, longest, key=lambda side: len(_encode(model, side)[0].tokens))
    if not fitting:
        least = len(_encode(model, _SIDES[0])[0].tokens)
        raise ValueError(
            f"an image of {_SIDES[0]} x {_SIDES[0]} pixels takes {least} tokens with its chat, and a chat has at most "
            f"{longest} (data.init_args.max_length, packed_length)"
        )
    return _encode(model, _SIDES[fitting - 1])


def _encode(model: ModelProcessor, side: int) -> tuple[Chat, dict[str, Tensor]]:
    from PIL import Image

    question = Message(role="user", content=f"{MARKER}\nwhat is shown here?")
    item = ChatItem([question, Message(role="assistant", content="a")], (), [Image.new("RGB", (side, side))])
    return ProcessedSampleEncoder(model).chat(item, "a chat of the doctor")
