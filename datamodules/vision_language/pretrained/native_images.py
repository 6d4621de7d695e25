"""Decodes the images of chats at their own resolution, for the processor of a pretrained model."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from datamodules.images.decoding import decode, image_size
from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.pretrained.encoded_chat import collate_images

if TYPE_CHECKING:
    from PIL.Image import Image

_PATCH = 28 * 28  # pixels of an image token, as in Qwen2-VL


class NativeImages(NamedTuple):
    """Decodes images and batches what the processor makes of them. It has the methods of ImageProcessor."""

    max_pixels: int  # maximum size of an image

    def decode_images(self, chat: ImageChat) -> list["Image"]:
        """Decode the images of a chat.

        Raises:
            BadSampleError: an image cannot be decoded; the message names it.
        """
        number = len(chat.images)
        names = [f"{chat.name}, image {image} of {number}" for image in range(1, number + 1)]
        return [decode(data, name, self.max_pixels) for data, name in zip(chat.images, names, strict=True)]

    def item(self, chat: ImageChat) -> ChatItem:
        """Return a chat as a sample whose encoder input is its decoded images. Raises the errors of `decode_images`."""
        return ChatItem(chat.messages, (), self.decode_images(chat))

    def length(self, chat: ImageChat) -> int:
        """Estimate the tokens of a chat up to its last answer, from the headers of its images."""
        pixels = sum(height * width for height, width in filter(None, map(image_size, chat.images)))
        prompt = chat.messages[:-1] if chat.messages[-1]["role"] == "assistant" else chat.messages
        # About four characters per token, as in English.
        return pixels // _PATCH + sum(len(message["content"]) for message in prompt) // 4

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the processed images of several chats as one batch."""
        return collate_images(items)
