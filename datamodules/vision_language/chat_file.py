"""Defines a sample as stored in its file, before anything is decoded."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import Message
from engine.data.epoch_order import ShuffleBlocks

__all__ = ["MARKER", "ChatFile", "ImageChat", "ReferenceAnswer", "last_answer"]


class ReferenceAnswer(NamedTuple):
    """What is accepted as the answer to a question of a table."""

    kind: str  # kind of the question; empty if the table has no kinds
    accepted: tuple[str, ...]  # answers, any of which is right; of a question with options, the letter
    letters: str = ""  # letters of the options, as "ABCD"; empty for an open question
    options: tuple[str, ...] = ()  # their texts; empty if they are in the text of the question


class ImageChat(NamedTuple):
    """Turns of a chat and its encoded images."""

    name: str  # file and row, for messages
    messages: list[Message]  # with one MARKER per image in the texts of the user, in order
    images: list[bytes]  # encoded, as in their files
    reference: ReferenceAnswer | None = None  # of a row of a table of questions

    def with_system(self, message: str | None) -> "ImageChat":
        """Return the chat with this system message, unless it has one."""
        if message is None or self.messages[0]["role"] == "system":
            return self
        return self._replace(messages=[Message(role="system", content=message), *self.messages])


def last_answer(messages: Sequence[Message]) -> str:
    """Return the last turn if it is the assistant's, which is the reference of an evaluation; otherwise ""."""
    return messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""


class ChatFile(Protocol):
    """Samples with random access, from one or several files of the same format."""

    blocks: ShuffleBlocks | None
    """Rows that are read together (row groups); None if any row costs the same."""

    identity: str
    """Identity of the content without reading all of it; independent of path and modification time."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """Return file and row, without reading the row."""
        ...

    def read(self, row: int) -> ImageChat:
        """Read a row as a chat.

        Raises:
            BadSampleError: the row is invalid.
            OSError: the file is missing or cannot be read; not the fault of a single row.
        """
        ...
