"""Reads samples of a tar shard as chats with images."""

from typing import Any, BinaryIO

from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_file import MARKER, ImageChat
from datamodules.vision_language.files.chat_formats import (
    CHAT_FIELDS,
    IMAGE_FIELDS,
    first_filled,
    insert_image_markers,
    parse_messages,
)
from datamodules.vision_language.shards.shard import SampleLocation, open_shard
from datamodules.vision_language.shards.tar_index import shown_name
from datamodules.vision_language.shards.webdataset_samples import (
    IMAGES,
    UNREAD_IMAGES,
    TarSample,
    image_suffixes,
    iter_samples,
    read_contents,
)
from engine.data.errors import BadSampleError
from engine.io.json_records import describe_value, parse_json

CHAT, CAPTION = "json", "txt"


def read_sample(location: SampleLocation) -> ImageChat:
    """Read the images of a sample and its chat: the .json, else the .txt as a caption.

    Raises:
        BadSampleError: the sample has neither, or they are not text; the .json is not a chat, or names an image which
            the sample lacks; a file is too large.
        ValueError: the shard ends too early.
        OSError: the shard cannot be read.
    """
    if location.sample is not None:
        return _read(location.sample, None)
    with open_shard(location.shard) as file:
        file.seek(location.begin)
        samples = iter_samples(file, location.shard, keep=False, begin=location.begin, number=location.number)
        return _read(next(samples), file)


def _read(sample: TarSample, file: BinaryIO | None) -> ImageChat:
    suffixes = image_suffixes(sample)
    content = _parse_chat(sample, file)
    if not suffixes:
        _check_text_only(sample, content)
    messages = _chat(sample, content)
    if messages is None:
        # The .json of a captioned image holds other data than a chat.
        messages = _caption(sample, file, len(suffixes))
    messages = insert_image_markers(sample.name, messages, len(suffixes))
    return ImageChat(sample.name, messages, [read_contents(sample, suffix, file) for suffix in suffixes])


def _parse_chat(sample: TarSample, file: BinaryIO | None) -> Any:
    """Return the content of the .json; None if the sample has none."""
    if CHAT not in sample.files:
        return None
    text = read_contents(sample, CHAT, file)
    try:
        return parse_json(text)
    except ValueError as error:
        raise BadSampleError(f"{sample.name}: the .json is not JSON: {error}") from error


def _check_text_only(sample: TarSample, content: Any) -> None:
    """Refuse a sample without an image that should have one; its chat would be learned as a chat about nothing."""
    field = first_filled(IMAGE_FIELDS, content) if isinstance(content, dict) else None
    image_names = None if field is None else content[field]
    other = next((suffix for suffix in sample.files if suffix.rpartition(".")[2] in UNREAD_IMAGES), None)
    if other is not None:
        raise BadSampleError(
            f"{sample.name}: found the image .{shown_name(other)}, expected one of {', '.join(IMAGES)}; convert it"
        )
    if image_names not in (None, "", []):
        raise BadSampleError(
            f"{sample.name}: the .json names the {field} {describe_value(image_names)}, but the sample has no image; "
            "write the files of a sample next to each other, with the same name up to the first dot"
        )


def _chat(sample: TarSample, content: Any) -> list[Message] | None:
    """Return the chat of the .json; None if it has another content, such as the URL and license of a caption."""
    turns = content.get(first_filled(CHAT_FIELDS, content)) if isinstance(content, dict) else content
    return None if turns is None else parse_messages(sample.name, turns)


def _caption(sample: TarSample, file: BinaryIO | None, images: int) -> list[Message]:
    if CAPTION not in sample.files or not images:
        raise BadSampleError(
            f"{sample.name}: expected a .json with one of {', '.join(CHAT_FIELDS)}, or an image and a .txt with a "
            f"caption, next to each other; found {shown_name(', '.join(sample.files))}"
        )
    text = read_contents(sample, CAPTION, file)
    try:
        caption = text.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise BadSampleError(f"{sample.name}: the .txt is not UTF-8: {error}") from error
    if not caption:
        raise BadSampleError(f"{sample.name}: the .txt is empty, expected a caption")
    return [Message(role="user", content="\n".join([MARKER] * images)), Message(role="assistant", content=caption)]
