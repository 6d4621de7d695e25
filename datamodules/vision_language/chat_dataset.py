"""Reads chats with images, decodes the images and splits them into views."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from typing_extensions import override

from datamodules.images.decoding import decode, image_size
from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.images.image_processing import count_image_tokens, prepare_images
from datamodules.multimodal.images.tiling import ResizeMode, Views, collate_views
from datamodules.vision_language.chat_file import ImageChat
from engine.data.epoch_order import ShuffleBlocks

if TYPE_CHECKING:
    from PIL.Image import Image


class ImageProcessor(NamedTuple):
    """Converts the bytes of images to views."""

    layout: ImageLayout
    max_pixels: int  # maximum size of an image
    resize_mode: ResizeMode = "stretch"

    def decode_images(self, chat: ImageChat) -> list["Image"]:
        """Decode the images of a chat.

        Raises:
            BadSampleError: an image cannot be decoded; the message names it.
        """
        number, needed = len(chat.images), self.layout.size * self.layout.max_tiles
        names = [f"{chat.name}, image {image} of {number}" for image in range(1, number + 1)]
        return [decode(data, name, self.max_pixels, needed) for data, name in zip(chat.images, names, strict=True)]

    def item(self, chat: ImageChat) -> ChatItem:
        """Convert a chat to a sample. Raises the errors of `decode_images`."""
        return ChatItem(chat.messages, *prepare_images(self.decode_images(chat), self.layout, self.resize_mode))

    def length(self, chat: ImageChat) -> int:
        """Estimate the tokens of a chat up to its last answer, from the headers of its images."""
        sizes = filter(None, map(image_size, chat.images))
        images = sum(count_image_tokens(height, width, self.layout) for width, height in sizes)
        prompt = chat.messages[:-1] if chat.messages[-1]["role"] == "assistant" else chat.messages
        # About four characters per token, as in English.
        return images + sum(len(message["content"]) for message in prompt) // 4

    def collate(self, items: Sequence[Views]) -> Images:
        """Return the views of several chats as one batch."""
        return collate_views(items, self.layout)


class ChatImages(Protocol):
    """Decodes the images of chats and batches them: ImageProcessor, or NativeImages for a pretrained model."""

    def decode_images(self, chat: ImageChat) -> list["Image"]:
        """Decode the images of a chat."""
        ...

    def item(self, chat: ImageChat) -> ChatItem:
        """Convert a chat to a sample."""
        ...

    def length(self, chat: ImageChat) -> int:
        """Estimate the tokens of a chat up to its last answer."""
        ...

    def collate(self, items: Sequence[Any]) -> Any:
        """Return the images of several chats as one batch."""
        ...


class Chats(Protocol):
    """Chats of one or several files, which may differ between epochs; see Mixture."""

    def __len__(self) -> int: ...

    def name(self, epoch: int, index: int) -> str:
        """Return the file and row of a sample of an epoch."""
        ...

    def read(self, epoch: int, index: int) -> ImageChat:
        """Read a sample of an epoch."""
        ...

    def blocks(self, epoch: int) -> ShuffleBlocks | None:
        """Return the blocks of samples that are cheap to read together; None if all samples cost the same."""
        ...


class ImageChatDataset(ChatSource):
    """Base of the datasets of chats with images.

    Args:
        processor: processor of the images.
    """

    def __init__(self, processor: ChatImages) -> None:
        self.processor = processor

    @override
    def collate(self, items: Sequence[Any]) -> Any:
        return self.processor.collate(items)


class ChatTrainDataset(ImageChatDataset):
    """Chats for training.

    Args:
        chats: the chats.
        processor: processor of the images.
    """

    def __init__(self, chats: Chats, processor: ChatImages) -> None:
        super().__init__(processor)
        self.chats = chats

    @override
    def __len__(self) -> int:
        return len(self.chats)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.chats.name(epoch, index)})"

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        return self.processor.item(self.chats.read(epoch, index))

    def blocks(self, epoch: int) -> ShuffleBlocks | None:
        """Return the blocks of samples that are cheap to read together, see BatchedDataset."""
        return self.chats.blocks(epoch)
