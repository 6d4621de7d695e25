"""The user's chats as samples: read, their images decoded and cut to views."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat import Message
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.image_decoding import decode, size_of
from datamodules.multimodal.images import Fit, Views, collate_views, joined, tiles, views_of
from datamodules.multimodal.unusable import UnusableSample
from datamodules.vision_language.image_chat import ImageChat
from engine.randomness import hash_permutation
from engine.sampling import Blocks

if TYPE_CHECKING:
    from PIL.Image import Image

_CHOICE = 0xC401  # of the samples of an evaluation; the same in every run


class Cutting(NamedTuple):
    """From an image's bytes to views."""

    layout: ImageLayout
    max_pixels: int  # of an image that is decoded at all
    fit: Fit = "stretch"

    def pictures(self, chat: ImageChat) -> list["Image"]:
        """Its images, decoded.

        Raises:
            UnusableSample: one cannot be; says which.
        """
        number, needed = len(chat.images), self.layout.size * self.layout.max_tiles
        places = [f"{chat.name}, image {place} of {number}" for place in range(1, number + 1)]
        return [decode(data, name, self.max_pixels, needed) for data, name in zip(chat.images, places, strict=True)]

    def item(self, chat: ImageChat) -> ChatItem:
        """A chat as a sample. Errors as of `pictures`."""
        views = [views_of(picture, self.layout, self.fit) for picture in self.pictures(chat)]
        counts = tuple(len(one.places) * self.layout.view_tokens for one in views)
        return ChatItem(chat.messages, counts, joined(views, self.layout))

    def length(self, chat: ImageChat) -> int:
        """About how many tokens it has up to its last answer, by the headers of its images."""
        sizes = filter(None, map(size_of, chat.images))
        grids = (tiles(height, width, self.layout) for width, height in sizes)
        views = sum(1 if grid == (1, 1) else 1 + grid[0] * grid[1] for grid in grids)
        asked = chat.messages[:-1] if chat.messages[-1]["role"] == "assistant" else chat.messages
        # Four characters a token, as English has about.
        return views * self.layout.view_tokens + sum(len(message["content"]) for message in asked) // 4


class Chats(Protocol):
    """Chats of one file or several, perhaps others in each epoch; see Mixture."""

    def __len__(self) -> int: ...

    def name(self, epoch: int, index: int) -> str: ...

    def read(self, epoch: int, index: int) -> ImageChat: ...

    def blocks(self, epoch: int) -> Blocks | None: ...


class ImageChatSamples:
    """Chats to train on."""

    def __init__(self, chats: Chats, cutting: Cutting) -> None:
        self.chats, self.cutting = chats, cutting

    def __len__(self) -> int:
        return len(self.chats)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.chats.name(epoch, index)})"

    def item(self, epoch: int, index: int) -> ChatItem:
        return self.cutting.item(self.chats.read(epoch, index))

    def blocks(self, epoch: int) -> Blocks | None:
        """Which samples are cheap to read together; see BatchedDataset."""
        return self.chats.blocks(epoch)

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.cutting.layout)


class EvaluatedChats:
    """Chats of one epoch to be scored and answered. All are read once at the start, and their texts kept.

    Args:
        chats: as of ImageChatSamples.
        cutting: of their images.
        size: the most of them, chosen among all of them and the same in every run; None for all.
    """

    def __init__(self, chats: Chats, cutting: Cutting, size: int | None = None) -> None:
        self.chats, self.cutting = chats, cutting
        self._chosen = chosen(len(chats), len(chats) if size is None else size)
        # In the order of the files, which is how they are read fastest; and before loaders are forked from here.
        self._known = [self._look(int(index)) for index in self._chosen]

    def __len__(self) -> int:
        return len(self._chosen)

    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.chats.name(0, int(self._chosen[index]))})"

    def messages(self, index: int) -> list[Message]:
        """A sample's texts; none of one that cannot be read."""
        return self._known[index][0]

    def length(self, index: int) -> int:
        """About how many tokens its prompt has."""
        return self._known[index][1]

    def pictures(self, index: int) -> list["Image"]:
        """A sample's images, as they are."""
        return self.cutting.pictures(self._read(int(self._chosen[index])))

    def item(self, epoch: int, index: int) -> ChatItem:
        return self.cutting.item(self._read(int(self._chosen[index])))

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.cutting.layout)

    def _read(self, index: int) -> ImageChat:
        return self.chats.read(0, index)

    def _look(self, index: int) -> tuple[list[Message], int]:
        try:
            chat = self._read(index)
        except UnusableSample:
            return [], 0  # whoever asks for the sample is told
        return chat.messages, self.cutting.length(chat)


def chosen(samples: int, size: int) -> NDArray[np.int64]:
    """[at most size] the samples that an evaluation takes: many short stretches, as neighbours are read at once."""
    if size >= samples:
        return np.arange(samples)
    stretch = int(np.clip(size // 16, 1, 16))
    places = hash_permutation(-(-samples // stretch), _CHOICE)[np.arange(samples) // stretch]
    return np.sort(np.argsort(places, kind="stable")[:size])
