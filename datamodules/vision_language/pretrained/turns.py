"""Checks the turns of a chat, and splits their texts at the images."""

import re
from collections.abc import Sequence
from typing import Any

from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import Message, check_messages


def check_turns(messages: Sequence[Message], images: int, control: re.Pattern[str], name: str) -> None:
    """Check a chat.

    Args:
        messages: the turns.
        images: number of images.
        control: pattern of special tokens.
        name: name of the sample, for errors.

    Raises:
        ValueError: there is no turn, a role is unknown, the texts are too long, a text contains a special token, or
            markers and images disagree.
    """
    check_messages(messages, name)
    markers = 0
    for number, message in enumerate(messages, 1):
        role, content = message["role"], message["content"]
        if MARKER in content and role != "user":
            raise ValueError(f"sample {name}: message {number} ({role}): {MARKER} belongs in a user's text")
        markers += content.count(MARKER)
        # The marker may itself be a special token of the model.
        special = control.search(content.replace(MARKER, ""))
        if special:
            raise ValueError(
                f"sample {name}: message {number} ({role}) contains the special token {special.group()}, which would "
                "be parsed as chat structure; remove it from the text"
            )
    if markers != images:
        raise ValueError(f"sample {name}: found {MARKER} {markers} times in the user's text, expected {images} times")


def split_images(text: str, keeps_newlines: bool) -> list[dict[str, Any]]:
    """Return a text as the parts that chat templates read: texts, and images in place of the markers.

    Args:
        text: text of a turn.
        keeps_newlines: whether the newline after a marker is part of the text. Otherwise it is part of the marker,
            because each chat template separates images from texts in its own way.
    """
    parts: list[dict[str, Any]] = []
    for number, piece in enumerate(text.split(MARKER)):
        if number:
            parts.append({"type": "image"})
            piece = piece if keeps_newlines else piece.removeprefix("\n")
        if piece:
            parts.append({"type": "text", "text": piece})
    return parts or [{"type": "text", "text": ""}]
