"""Makes the row of chats with which a pretrained image-text model takes the most memory under the config's settings."""

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

_SMALLEST, _LARGEST = 56, 2048
"""Sides of square images that are tried, in pixels."""
_STEP = 2**0.5


class ImageRow(NamedTuple):
    """A full row of chats, and the inputs of its images."""

    rows: TokenRows
    images: dict[str, Tensor]
    number: int
    """Number of images."""
    image_tokens: int
    """Tokens of an image."""


def fullest_row(model: ModelProcessor, tokens: int, packed: bool) -> ImageRow:
    """Return a row of the largest square images that fit it, with text in the other places; the text is supervised.

    Args:
        model: the processor, which resizes images and gives them tokens.
        tokens: positions of the row.
        packed: whether a row has several chats, as many as fit it; otherwise it has one, with one image.

    Raises:
        ValueError: no image fits the row.
    """
    chat, images = _largest_image(model, tokens)
    number = max(1, tokens // len(chat.tokens)) if packed else 1
    rest = tokens - number * len(chat.tokens)
    filler = np.full(rest, model.end_of_text, np.int64)
    chats = [Chat(chat.tokens, chat.tokens != model.image_token, chat.placeholders)] * number
    if packed and rest:
        chats.append(Chat(filler, np.ones(rest, np.bool_), 0))
    elif rest:
        longer = np.concatenate([chat.tokens, filler])
        chats = [Chat(longer, longer != model.image_token, chat.placeholders)]
    rows, _ = pack(chats, np.arange(len(chats)), tokens, model.pad)
    return ImageRow(rows, collate_images([images] * number), number, chat.placeholders)


def _largest_image(model: ModelProcessor, tokens: int) -> tuple[Chat, dict[str, Tensor]]:
    """Return a chat about the image with the most tokens among those that fit the row."""
    side = float(_SMALLEST)
    largest = smallest = _encode(model, _SMALLEST)
    if len(smallest[0].tokens) > tokens:
        raise ValueError(
            f"an image of {_SMALLEST} x {_SMALLEST} pixels takes {len(smallest[0].tokens)} tokens with its chat, and a "
            f"row has {tokens} (data.init_args.packed_length or max_length)"
        )
    while side * _STEP <= _LARGEST:
        side *= _STEP
        encoded = _encode(model, round(side))
        if len(encoded[0].tokens) > tokens:
            break
        if encoded[0].placeholders > largest[0].placeholders:
            largest = encoded
    return largest


def _encode(model: ModelProcessor, side: int) -> tuple[Chat, dict[str, Tensor]]:
    from PIL import Image

    question = Message(role="user", content=f"{MARKER}\nwhat is shown here?")
    item = ChatItem([question, Message(role="assistant", content="a")], (), [Image.new("RGB", (side, side))])
    return ProcessedSampleEncoder(model).chat(item, "a chat of the doctor")
