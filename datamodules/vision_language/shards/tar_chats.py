"""A tar shard's samples as chats with images."""

import json
from typing import BinaryIO

from datamodules.multimodal.chat import Message
from datamodules.vision_language.files.forms import CHAT_FIELDS, first_of, marked, messages_of
from datamodules.vision_language.image_chat import MARKER, ImageChat, UnusableSample
from datamodules.vision_language.shards.shard import Place, open_shard
from datamodules.vision_language.shards.tar_samples import TarSample, contents, image_suffixes, tar_samples

CHAT, CAPTION = "json", "txt"


def read_sample(place: Place) -> ImageChat:
    """A sample's images, and what is said about them: the chat in its .json, else its .txt, a caption.

    Raises:
        UnusableSample: it has neither, or they are no text; its .json is no chat; a file is too large.
        ValueError: its shard ends before.
        OSError: its shard cannot be read.
    """
    if place.kept is not None:
        return _read(place.kept, None)
    with open_shard(place.shard) as file:
        file.seek(place.begin)
        found = tar_samples(file, place.shard, keep=False, begin=place.begin, number=place.number)
        return _read(next(found), file)


def _read(sample: TarSample, file: BinaryIO | None) -> ImageChat:
    suffixes = image_suffixes(sample)
    messages = _chat(sample, file)
    if messages is None:
        messages = _caption(sample, file, len(suffixes))
    messages = marked(sample.name, messages, len(suffixes))
    return ImageChat(sample.name, messages, [contents(sample, suffix, file) for suffix in suffixes])


def _chat(sample: TarSample, file: BinaryIO | None) -> list[Message] | None:
    """What its .json says; None where that is no chat: some tools put a caption's address and licence there."""
    if CHAT not in sample.files:
        return None
    text = contents(sample, CHAT, file)
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableSample(f"{sample.name}: its .json is not JSON: {error}") from error
    turns = fields.get(first_of(CHAT_FIELDS, fields)) if isinstance(fields, dict) else fields
    return None if turns is None else messages_of(sample.name, turns)


def _caption(sample: TarSample, file: BinaryIO | None, images: int) -> list[Message]:
    if CAPTION not in sample.files or not images:
        raise UnusableSample(
            f"{sample.name}: expected a .json with one of {', '.join(CHAT_FIELDS)}, or an image and a .txt with its "
            f"caption; found {', '.join(sample.files)}"
        )
    text = contents(sample, CAPTION, file)
    try:
        caption = text.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise UnusableSample(f"{sample.name}: its .txt is not UTF-8: {error}") from error
    if not caption:
        raise UnusableSample(f"{sample.name}: its .txt is empty, expected a caption")
    return [Message(role="user", content="\n".join([MARKER] * images)), Message(role="assistant", content=caption)]
