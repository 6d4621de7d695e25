"""Provides the base of the multimodal DataModules: a tokenizer, packed chats, and graded answers."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.multimodal.chat_dataset import ChatExamples, ChatQuestions, ChatSource, SampleEncoder, TooLong
from datamodules.multimodal.chat_stream import ChatRecords, ChatStream
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import ChatTokenizer, load_tokenizer
from engine.base_options import LoadingOptions, Unpack
from engine.datamodule import LockstepDataModule
from engine.number_check import check_number, check_numbers

log = logging.getLogger("lockstep")


class ChatOptions(LoadingOptions, total=False):
    """Options of MultimodalDataModule, which describes them, and of its base."""

    tokenizer: str | None
    packed_length: int | None
    length_groups: int
    max_length: int | None
    too_long: TooLong
    max_unusable: int


class MultimodalDataModule(LockstepDataModule):
    """Chats with a marker for another modality.

    Args:
        tokenizer: name on the Hugging Face hub or local directory of the language model's tokenizer; null for the
            built-in tokenizer.
        packed_length: tokens of a row that several chats are packed into, without attending to each other; null for one
            chat per row.
        length_groups: number of parts of similar length that an unpacked micro-batch is computed in.
        max_length: maximum number of tokens of a training chat; null for no limit.
        too_long: policy for a longer chat: `stop` (an error that names its sample) or `drop` (it is skipped and
            counted). A chat is never truncated.
        max_unusable: deprecated, removed in 0.3.0: use `on_bad_sample: skip` with `max_bad_samples`; 0 leaves these
            settings in force.
        **batches: see LockstepDataModule.
    """

    extra = "language"

    marker: str
    """Marker of the modality in the text of a user."""

    outcomes: tuple[str, ...]
    """Names of the outcomes that `grade` returns, the most informative first."""

    kinds: tuple[str, ...] = ()
    """Kinds of questions whose losses are logged separately; see `kind`."""

    baselines: tuple[str, ...] = ()
    """Names of baselines that answer as well, besides the model and the model without its modality."""

    train_set: ChatExamples | ChatStream[Any]
    validation_set: ChatQuestions
    test_set: ChatQuestions
    predict_set: ChatQuestions

    def __init__(
        self,
        tokenizer: str | None = None,
        packed_length: int | None = None,
        length_groups: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        max_unusable: int = 0,
        **batches: Unpack[LoadingOptions],
    ) -> None:
        check_number("data.init_args.max_unusable", max_unusable, at_least=0)
        if max_unusable:
            log.warning(
                "deprecated: data.init_args.max_unusable is removed in 0.3.0; use on_bad_sample skip and "
                "max_bad_samples %d", max_unusable,
            )  # fmt: skip
            batches |= {"on_bad_sample": "skip", "max_bad_samples": max_unusable}
        super().__init__(**batches)
        sizes = {"packed_length": packed_length, "length_groups": length_groups, "max_length": max_length}
        check_numbers("data.init_args.", sizes, at_least=1)
        if too_long == "drop" and max_length is None:
            raise ValueError("data.init_args.too_long is drop, but max_length is null: no chat is too long")
        self.tokenizer_source, self.packed_length = tokenizer, packed_length
        self.length_groups, self.max_length = length_groups, max_length
        self.too_long: TooLong = too_long

    @abstractmethod
    def texts(self) -> Iterable[str]:
        """Return the texts that the built-in tokenizer is trained on; the same in every run."""

    @abstractmethod
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        """Return {outcome: (points reached, points possible)} of an answer to a sample of the evaluated set."""

    def kind(self, sample: int) -> str:
        """Return the kind of a sample of the evaluated set, one of `kinds`; the empty string if there are none."""
        return ""

    @abstractmethod
    def describe(self, row: int) -> dict[str, Any]:
        """Return the fields that `predict` writes besides the answer to a row."""

    def next_turns(self, answers: Mapping[int, Sequence[str]]) -> ChatEvaluationBatch | None:
        """Return the next questions of the conversations of `predict_set`; None if all are answered.

        Args:
            answers: {row: the model's answers so far}.
        """
        return None

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        """Tokenizer of the run, loaded or trained once."""
        return load_tokenizer(self.tokenizer_source, self.texts() if self.tokenizer_source is None else ())

    @cached_property
    def chat_encoder(self) -> ChatEncoder:
        """Encoder of messages, with the tokenizer of the run."""
        return ChatEncoder(self.tokenizer, self.marker)

    @property
    def sample_encoder(self) -> ChatEncoder | SampleEncoder:
        """Encoder of the samples: `chat_encoder`, unless a family has another for some of its models."""
        return self.chat_encoder

    @property
    def packed_tokens(self) -> int | None:
        """Tokens of a row that chats are packed into, see `packed_length`; None if they are not packed."""
        return self.packed_length

    @property
    def evaluated(self) -> ChatSource:
        """Source of the set that is being evaluated."""
        return self.evaluated_set.source

    def sample_name(self, sample: int) -> str:
        """Return the index of a sample of the evaluated set with the file and row that it comes from."""
        return self.evaluated.name(sample)

    @property
    def evaluated_set(self) -> ChatQuestions:
        """The set that is being evaluated."""
        assert self.trainer is not None  # evaluation runs under a trainer
        stage = self.trainer.state.stage
        name = "" if stage is None else stage.value
        # All other stages (validate, sanity_check, train) evaluate the validation set.
        return self.test_set if name == "test" else self.predict_set if name == "predict" else self.validation_set

    def examples(self, source: ChatSource) -> ChatExamples:
        """Return a training dataset."""
        return self._make_examples(source)

    def stream(self, source: ChatRecords[Any]) -> ChatStream[Any]:
        """Return a training dataset of a source with an order but without a length or random access."""
        return ChatStream(source, self._make_examples)

    @property
    def _make_examples(self) -> Callable[[ChatSource], ChatExamples]:
        return partial(
            ChatExamples,
            encoder=self.sample_encoder,
            packed_length=self.packed_tokens,
            length_groups=self.length_groups,
            max_length=self.max_length,
            too_long=self.too_long,
            skip_bad=self.skips_bad_samples,
        )

    def questions(self, source: ChatSource, in_order: bool = False) -> ChatQuestions:
        """Return a dataset for evaluation, or for prediction if `in_order`."""
        return ChatQuestions(source, self.sample_encoder, in_order, skip_bad=self.skips_bad_samples)
