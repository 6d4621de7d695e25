"""A family's samples as batches of chats: to train on, and to be asked about."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.multimodal.batch import Chat, Examples, Questions
from datamodules.multimodal.chat import ChatEncoder, Message
from datamodules.multimodal.packing import one_per_row, pack, pad_rows, prompts
from engine.sampling import FILLER, Draw


class ChatItem(NamedTuple):
    """One sample of a family."""

    messages: list[Message]  # the last one is the right answer, where it is known
    counts: tuple[int, ...]  # feature vectors of each marker in the user's texts
    modality: Any  # what the family's `collate` makes a batch of


class ChatSource(Protocol):
    """A family's samples."""

    def __len__(self) -> int: ...

    def item(self, epoch: int, index: int) -> ChatItem: ...

    def collate(self, items: Sequence[Any]) -> Any:
        """What the encoder reads; also of no items."""
        ...


class ChatExamples(Dataset[tuple[Examples, ...]]):
    """Micro-batches to train on.

    Args:
        source: the samples.
        encoder: makes them chats.
        row_tokens: tokens of a row that chats are packed into; None for one chat a row, in `length_groups` batches of
            similar length.
        length_groups: see `row_tokens`.
        max_length: a longer chat is an error that names its sample.
    """

    def __init__(
        self,
        source: ChatSource,
        encoder: ChatEncoder,
        row_tokens: int | None = None,
        length_groups: int = 1,
        max_length: int | None = None,
    ) -> None:
        self.source, self.encoder, self.row_tokens = source, encoder, row_tokens
        self.length_groups, self.max_length = length_groups, max_length

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, draw: Draw) -> tuple[Examples, ...]:
        indices = draw.indices[draw.indices != FILLER]
        items = [self.source.item(draw.epoch, int(index)) for index in indices]
        numbered = zip(items, indices, strict=True)
        chats = [self.encoder.chat(item.messages, item.counts, index) for item, index in numbered]
        pad, length = self.encoder.tokenizer.pad, self.max_length
        if self.row_tokens is not None:
            parts = [pack(chats, indices, self.row_tokens, pad, length)]
        else:
            parts = pad_rows(chats, indices, self.length_groups, pad, length)
        return tuple(
            Examples(rows, self.source.collate([items[place].modality for place in order])) for rows, order in parts
        )


class ChatQuestions(Dataset[Questions]):
    """Batches to be scored and answered, from the shortest prompts to the longest, so that little is padding.

    Args:
        source: the samples.
        encoder: makes them chats.
        in_order: keep the source's order, in which predictions are written as they come.
        number: of samples, the first ones of the source; None for all.
    """

    def __init__(
        self, source: ChatSource, encoder: ChatEncoder, in_order: bool = False, number: int | None = None
    ) -> None:
        self.source, self.encoder, self.in_order = source, encoder, in_order
        self.number = len(source) if number is None else number

    def first(self, number: int) -> "ChatQuestions":
        """Of the source's first samples alone: the shortest prompts would not be a fair choice."""
        return ChatQuestions(self.source, self.encoder, self.in_order, number)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        if self.in_order:
            return np.arange(len(self))
        lengths = [len(self._prompt(self.source.item(0, index), index).tokens) for index in range(len(self))]
        return np.argsort(np.array(lengths, np.int64), kind="stable")

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, draw: Draw) -> Questions:
        indices = self._order[draw.indices[draw.indices != FILLER]]
        items = [self.source.item(0, int(index)) for index in indices]
        numbered = list(zip(items, indices, strict=True))
        pad = self.encoder.tokenizer.pad
        asked = [self._prompt(item, index) for item, index in numbered]
        whole = [self._whole(item, index) for item, index in numbered]
        modality = self.source.collate([item.modality for item in items])
        return Questions(one_per_row(whole, indices, pad), prompts(asked, indices, pad), modality)

    def _prompt(self, item: ChatItem, index: int) -> Chat:
        return self.encoder.prompt(item.messages, item.counts, index)

    def _whole(self, item: ChatItem, index: int) -> Chat:
        known = item.messages[-1]["role"] == "assistant"
        return self.encoder.chat(item.messages, item.counts, index) if known else self._prompt(item, index)
