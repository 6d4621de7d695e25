"""Batches chats: micro-batches for training, and batches for evaluation."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.multimodal.batch import Chat, ChatEvaluationBatch, ChatTrainBatch
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message, Placeholders
from datamodules.multimodal.text.packing import one_per_row, pack, pad_prompts, pad_rows
from engine.data.epoch_order import ShuffleBlocks
from engine.data.errors import BadSampleError
from engine.data.sample_loading import SkippedSample, load_samples
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest

TooLong = Literal["stop", "drop"]
"""Policy for a chat that is longer than `max_length`. A chat is never truncated, which could split an image."""


class ChatItem(NamedTuple):
    """A sample before it is encoded: its messages, and the encoder input of its images or series."""

    messages: list[Message]  # the last message is the reference answer, if it is known
    counts: tuple[Placeholders, ...]  # feature vectors of each marker in the user's texts
    encoder_input: Any  # of this sample alone; the family's `collate` joins those of a batch


class ChatSource(Protocol):
    """Samples of a family.

    Two methods are optional. `length(index)` estimates the tokens of a prompt without building the sample; questions
    are then sorted by this estimate. `blocks(epoch)` returns the blocks of samples that are cheap to read together, see
    BatchedDataset.
    """

    def __len__(self) -> int: ...

    def name(self, index: int, epoch: int = 0) -> str:
        """Return the index of a sample with the file and row that it comes from, for messages."""
        ...

    def item(self, epoch: int, index: int) -> ChatItem:
        """Return a sample as messages.

        Raises:
            BadSampleError: the sample is invalid; the message names it.
        """
        ...

    def collate(self, items: Sequence[Any]) -> Any:
        """Return a batch for the encoder; `items` may be empty."""
        ...


class SampleEncoder(Protocol):
    """Encodes samples, for a DataModule that does not use ChatEncoder."""

    pad: int
    """Padding token."""

    def chat(self, item: ChatItem, name: str) -> tuple[Chat, Any]:
        """Return a sample as tokens, and the input of the family's encoder, which `collate` joins to a batch.

        Raises:
            BadSampleError: the messages are not a valid chat.
        """
        ...

    def prompt(self, item: ChatItem, name: str) -> tuple[Chat, Any]:
        """Return a sample up to the start of the last answer; see `chat`."""
        ...


class _TextEncoder(SampleEncoder):
    """SampleEncoder of a ChatEncoder, which leaves the modality to the source."""

    def __init__(self, encoder: ChatEncoder) -> None:
        self._encoder, self.pad = encoder, encoder.tokenizer.pad

    def chat(self, item: ChatItem, name: str) -> tuple[Chat, Any]:
        return encode_sample(self._encoder.chat, item, name), item.encoder_input

    def prompt(self, item: ChatItem, name: str) -> tuple[Chat, Any]:
        return encode_sample(self._encoder.prompt, item, name), item.encoder_input


def _sample_encoder(encoder: ChatEncoder | SampleEncoder) -> SampleEncoder:
    return _TextEncoder(encoder) if isinstance(encoder, ChatEncoder) else encoder


class ChatExamples(Dataset[tuple[ChatTrainBatch, ...]]):
    """Micro-batches of chats for training.

    Args:
        source: the samples.
        encoder: encodes the samples.
        packed_length: tokens of a row that several chats are packed into; None for one chat per row, in `length_groups`
            batches of similar length.
        length_groups: see `packed_length`.
        max_length: maximum number of tokens of a chat; None for no limit.
        too_long: `stop`: a longer chat is an error that names its sample; `drop`: it is skipped.
        skip_bad: skip invalid samples; otherwise they are errors.
    """

    def __init__(
        self,
        source: ChatSource,
        encoder: ChatEncoder | SampleEncoder,
        packed_length: int | None = None,
        length_groups: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        skip_bad: bool = False,
    ) -> None:
        self.source, self.encoder, self.packed_length = source, _sample_encoder(encoder), packed_length
        self.length_groups, self.max_length = length_groups, max_length
        self.too_long, self.skip_bad = too_long, skip_bad

    def __len__(self) -> int:
        return len(self.source)

    def blocks(self, epoch: int) -> ShuffleBlocks | None:
        """Return the blocks of the source, see BatchedDataset."""
        blocks = getattr(self.source, "blocks", None)
        return None if blocks is None else blocks(epoch)

    def __getitem__(self, request: MicroBatchRequest) -> tuple[ChatTrainBatch, ...]:
        indices = sample_indices(request)
        loaded, indices, skipped = load_samples(indices, lambda index: self._load(request.epoch, index), self.skip_bad)
        chats, pad = [chat for chat, _ in loaded], self.encoder.pad
        if self.packed_length is not None:
            parts = [pack(chats, indices, self.packed_length, pad)]
        else:
            parts = pad_rows(chats, indices, self.length_groups, pad)
        inputs = (self.source.collate([loaded[row][1] for row in order]) for _, order in parts)
        examples = [ChatTrainBatch(rows, of_rows) for (rows, _), of_rows in zip(parts, inputs, strict=True)]
        # Skipped samples are reported once for a micro-batch, with its first part.
        return (examples[0]._replace(skipped=skipped), *examples[1:])

    def _load(self, epoch: int, index: int) -> tuple[Chat, Any] | SkippedSample:
        item, name = self.source.item(epoch, index), self.source.name(index, epoch)
        chat, encoder_input = self.encoder.chat(item, name)
        if self.max_length is None or len(chat.tokens) <= self.max_length:
            return chat, encoder_input
        problem = (
            f"sample {name}: {len(chat.tokens)} tokens ({chat.placeholders} of them for features), but max_length is "
            f"{self.max_length}"
        )
        if self.too_long == "drop":
            return SkippedSample("too_long", problem, index)
        # This is not a BadSampleError: the limit is a setting, so `on_bad_sample: skip` does not hide it.
        raise ValueError(f"{problem}; raise it, or skip such samples: data.init_args.too_long drop")


class ChatQuestions(Dataset[ChatEvaluationBatch]):
    """Batches of chats for evaluation, sorted by the length of the prompts to reduce padding.

    Args:
        source: the samples.
        encoder: encodes the samples.
        in_order: keep the order of the source, in which predictions are written.
        number: number of samples, from the start of the source; None for all.
        skip_bad: skip invalid samples; otherwise they are errors.
    """

    def __init__(
        self,
        source: ChatSource,
        encoder: ChatEncoder | SampleEncoder,
        in_order: bool = False,
        number: int | None = None,
        skip_bad: bool = False,
    ) -> None:
        self.source, self.encoder, self.in_order = source, _sample_encoder(encoder), in_order
        self.number = len(source) if number is None else number
        self.skip_bad = skip_bad

    def first(self, number: int) -> "ChatQuestions":
        """Return the dataset of the first samples of the source; the shortest prompts would be a biased subset."""
        return ChatQuestions(self.source, self.encoder, self.in_order, number, self.skip_bad)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        if self.in_order:
            return np.arange(len(self))
        length = getattr(self.source, "length", self._prompt_length)
        # Stable, so that prompts of equal length are in the same batches on every machine.
        return np.argsort(np.array([length(index) for index in range(len(self))], np.int64), kind="stable")

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, request: MicroBatchRequest) -> ChatEvaluationBatch:
        loaded, indices, skipped = load_samples(self._order[sample_indices(request)], self._load, self.skip_bad)
        pad = self.encoder.pad
        chats, prompt_chats = [chat for chat, *_ in loaded], [prompt for _, prompt, _ in loaded]
        encoder_input = self.source.collate([sample_input for *_, sample_input in loaded])
        return ChatEvaluationBatch(
            one_per_row(chats, indices, pad), pad_prompts(prompt_chats, indices, pad), encoder_input, skipped
        )

    def _load(self, index: int) -> tuple[Chat, Chat, Any]:
        """Return a sample's chat (the prompt if the answer is unknown), its prompt, and the input of the encoder."""
        item, name = self.source.item(0, index), self.source.name(index)
        prompt, encoder_input = self.encoder.prompt(item, name)
        is_answered = item.messages[-1]["role"] == "assistant"
        return self.encoder.chat(item, name)[0] if is_answered else prompt, prompt, encoder_input

    def _prompt_length(self, index: int) -> int:
        item = self.source.item(0, index)
        return len(self.encoder.prompt(item, self.source.name(index))[0].tokens)


def sample_indices(request: MicroBatchRequest) -> NDArray[np.int64]:
    """Return the indices of a request without padding."""
    return request.indices[request.indices != PADDING_INDEX]


def encode_sample(encode: Callable[..., Chat], item: ChatItem, name: str) -> Chat:
    """Encode a sample as tokens.

    Args:
        encode: a method of ChatEncoder.
        item: the sample.
        name: name of the sample, for errors.

    Raises:
        BadSampleError: the messages are not a valid chat (a special token in a text, a surplus marker, no answer).
    """
    try:
        return encode(item.messages, item.counts, name)
    except ValueError as error:
        raise BadSampleError(str(error)) from error
