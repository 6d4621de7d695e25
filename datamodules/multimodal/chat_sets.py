"""A family's samples as batches of chats: to train on, and to be asked about."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.multimodal.batch import Chat, Examples, Questions
from datamodules.multimodal.chat import ChatEncoder, Message
from datamodules.multimodal.packing import one_per_row, pack, pad_rows, prompts
from datamodules.multimodal.unusable import UnusableSample
from engine.bad_samples import LeftOut, usable
from engine.sampling import FILLER, Blocks, Draw

TooLong = Literal["stop", "drop"]
"""What becomes of a chat that is longer than `max_length`. It is never cut: that could be in the middle of an image."""


class ChatItem(NamedTuple):
    """One sample of a family."""

    messages: list[Message]  # the last one is the right answer, where it is known
    counts: tuple[int, ...]  # feature vectors of each marker in the user's texts
    modality: Any  # what the family's `collate` makes a batch of


class ChatSource(Protocol):
    """A family's samples.

    Where it is dear to make a sample, a method `length(index)` says about how many tokens the prompt of one has,
    without making it; questions are then ordered by this. A method `blocks(epoch)` tells which are cheap to read
    together; see BatchedDataset.
    """

    def __len__(self) -> int: ...

    def name(self, index: int, epoch: int = 0) -> str:
        """The sample's number, and the file and row that it comes from if it does: names it in messages."""
        ...

    def item(self, epoch: int, index: int) -> ChatItem:
        """
        Raises:
            UnusableSample: see there; the message names the sample.
        """
        ...

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
        max_length: tokens of the longest chat; None for any.
        too_long: `stop`: a longer chat is an error that names its sample; `drop`: it is left out.
        leave_out: leave samples out that cannot be used, too; otherwise they are errors.
    """

    def __init__(
        self,
        source: ChatSource,
        encoder: ChatEncoder,
        row_tokens: int | None = None,
        length_groups: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        leave_out: bool = False,
    ) -> None:
        self.source, self.encoder, self.row_tokens = source, encoder, row_tokens
        self.length_groups, self.max_length = length_groups, max_length
        self.too_long, self.leave_out = too_long, leave_out

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self, epoch: int) -> Blocks | None:
        """As the source tells them; see BatchedDataset."""
        tell = getattr(self.source, "blocks", None)
        return None if tell is None else tell(epoch)

    def __getitem__(self, draw: Draw) -> tuple[Examples, ...]:
        made, indices, left_out = usable(drawn(draw), lambda index: self._made(draw.epoch, index), self.leave_out)
        chats = [chat for _, chat in made]
        pad = self.encoder.tokenizer.pad
        if self.row_tokens is not None:
            parts = [pack(chats, indices, self.row_tokens, pad)]
        else:
            parts = pad_rows(chats, indices, self.length_groups, pad)
        modalities = (self.source.collate([made[place][0].modality for place in order]) for _, order in parts)
        examples = [Examples(rows, modality) for (rows, _), modality in zip(parts, modalities, strict=True)]
        return (examples[0]._replace(left_out=left_out), *examples[1:])

    def _made(self, epoch: int, index: int) -> tuple[ChatItem, Chat] | LeftOut:
        item, name = self.source.item(epoch, index), self.source.name(index, epoch)
        chat = encoded(self.encoder.chat, item, name)
        if self.max_length is None or len(chat.tokens) <= self.max_length:
            return item, chat
        what = (
            f"sample {name}: {len(chat.tokens)} tokens ({chat.placeholders} of them for features), but max_length is "
            f"{self.max_length}"
        )
        if self.too_long == "drop":
            return LeftOut("too_long", what, index)
        raise ValueError(f"{what}; raise it, or leave such samples out: data.init_args.too_long drop")


class ChatQuestions(Dataset[Questions]):
    """Batches to be scored and answered, from the shortest prompts to the longest, so that little is padding.

    Args:
        source: the samples.
        encoder: makes them chats.
        in_order: keep the source's order, in which predictions are written as they come.
        number: of samples, the first ones of the source; None for all.
        leave_out: leave samples out that cannot be used; otherwise they are errors.
    """

    def __init__(
        self,
        source: ChatSource,
        encoder: ChatEncoder,
        in_order: bool = False,
        number: int | None = None,
        leave_out: bool = False,
    ) -> None:
        self.source, self.encoder, self.in_order = source, encoder, in_order
        self.number = len(source) if number is None else number
        self.leave_out = leave_out

    def first(self, number: int) -> "ChatQuestions":
        """Of the source's first samples alone: the shortest prompts would not be a fair choice."""
        return ChatQuestions(self.source, self.encoder, self.in_order, number, self.leave_out)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        if self.in_order:
            return np.arange(len(self))
        length = getattr(self.source, "length", self._prompt_length)
        return np.argsort(np.array([length(index) for index in range(len(self))], np.int64), kind="stable")

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, draw: Draw) -> Questions:
        made, indices, left_out = usable(self._order[drawn(draw)], self._made, self.leave_out)
        pad = self.encoder.tokenizer.pad
        whole, asked = [chat for _, chat, _ in made], [prompt for *_, prompt in made]
        modality = self.source.collate([item.modality for item, *_ in made])
        return Questions(one_per_row(whole, indices, pad), prompts(asked, indices, pad), modality, left_out)

    def _made(self, index: int) -> tuple[ChatItem, Chat, Chat]:
        """The sample, its chat as far as it is known, and the prompt."""
        item, name = self.source.item(0, index), self.source.name(index)
        prompt = encoded(self.encoder.prompt, item, name)
        known = item.messages[-1]["role"] == "assistant"
        return item, encoded(self.encoder.chat, item, name) if known else prompt, prompt

    def _prompt_length(self, index: int) -> int:
        item = self.source.item(0, index)
        return len(encoded(self.encoder.prompt, item, self.source.name(index)).tokens)


def drawn(draw: Draw) -> NDArray[np.int64]:
    """The samples of a draw."""
    return draw.indices[draw.indices != FILLER]


def encoded(encode: Callable[..., Chat], item: ChatItem, name: str) -> Chat:
    """A sample as tokens, by a method of ChatEncoder.

    Raises:
        UnusableSample: its messages are no chat: a special token in a text, a marker too many, no answer.
    """
    try:
        return encode(item.messages, item.counts, name)
    except ValueError as error:
        raise UnusableSample(str(error)) from error
