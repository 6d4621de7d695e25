"""A sample of the vision-language family as its file has it, before anything is decoded."""

from typing import NamedTuple, Protocol

from datamodules.multimodal.chat import Message
from datamodules.multimodal.images import MARKER
from datamodules.multimodal.unusable import UnusableSample
from engine.sampling import Blocks

__all__ = ["MARKER", "ChatFile", "ImageChat", "UnusableSample"]


class ImageChat(NamedTuple):
    """Turns of a chat and its images."""

    name: str  # file and row, for messages
    messages: list[Message]  # with a MARKER in a user's text for each image, in order
    images: list[bytes]  # as they are encoded in their files

    def with_system(self, message: str | None) -> "ImageChat":
        """With this system message, if it has none."""
        if message is None or self.messages[0]["role"] == "system":
            return self
        return self._replace(messages=[Message(role="system", content=message), *self.messages])


class ChatFile(Protocol):
    """Samples that can be read one by one, from a file or several of the same form."""

    blocks: Blocks | None
    """Which rows are read at once (row groups); None where any row costs the same."""

    identity: str
    """Of what the rows hold, as far as it can be told without reading all: not of where they lie, nor since when."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """File and row, without reading it."""
        ...

    def read(self, row: int) -> ImageChat:
        """
        Raises:
            UnusableSample: see there.
            OSError: the file is gone or cannot be read: not a fault of this row alone.
        """
        ...
