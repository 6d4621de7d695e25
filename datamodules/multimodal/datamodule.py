"""The base of the multimodal families' DataModules: one tokenizer, chats in rows, answers that can be graded."""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

from datamodules.multimodal.chat import ChatEncoder
from datamodules.multimodal.chat_sets import ChatExamples, ChatQuestions, ChatSource, TooLong
from datamodules.multimodal.chat_stream import ChatRecords, ChatStream
from datamodules.multimodal.tokenizer import ChatTokenizer, load_tokenizer
from engine.datamodule import LockstepDataModule
from engine.examples import Example


class MultimodalDataModule(LockstepDataModule):
    """Chats with a marker in them for another modality.

    Args:
        tokenizer: name on the Hugging Face hub or local directory of the language model's tokenizer; null for the built-in one.
        row_tokens: tokens of a row that several chats are packed into, without seeing each other; null for one chat a row.
        length_groups: unpacked, a micro-batch is computed in so many parts of similar length.
        max_length: tokens of the longest chat to train on; null for any.
        too_long: what becomes of a longer one: `stop` (an error that names its sample) or `drop` (it is left out and counted). It is never cut.
        max_unusable: samples that may turn out unusable (a malformed row, an image that cannot be decoded) in a whole training, or in one evaluation: they are named, counted (each once, however often it is drawn; a stream's once an epoch), and left out. One more, and the run stops. The same as `on_bad_sample: skip` with `max_bad_samples`; 0: what these say.
        batches: see LockstepDataModule.
    """  # noqa: E501

    marker: str
    """What stands in a user's text where the modality goes."""

    outcomes: tuple[str, ...]
    """Names of what `grade` may tell, the one that says most first."""

    kinds: tuple[str, ...] = ()
    """Kinds of questions whose losses are told apart, too; see `kind`."""

    baselines: tuple[str, ...] = ()
    """Names of others that answer, beside the model and the model that is blind."""

    train_set: ChatExamples | ChatStream[Any]
    validation_set: ChatQuestions
    test_set: ChatQuestions
    predict_set: ChatQuestions

    def __init__(
        self,
        tokenizer: str | None = None,
        row_tokens: int | None = None,
        length_groups: int = 1,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        max_unusable: int = 0,
        **batches: Any,
    ) -> None:
        if max_unusable < 0:
            raise ValueError(f"data.init_args.max_unusable is a number of samples, 0 for none; got {max_unusable}")
        if max_unusable:
            batches |= {"on_bad_sample": "skip", "max_bad_samples": max_unusable}
            self.limit_of_bad_samples = "max_unusable"
        super().__init__(**batches)
        for name, size in (("row_tokens", row_tokens), ("length_groups", length_groups), ("max_length", max_length)):
            if size is not None and size < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, got {size}")
        if too_long == "drop" and max_length is None:
            raise ValueError("data.init_args.too_long is drop, but max_length is null, so no chat is too long")
        self.tokenizer_source, self.row_tokens = tokenizer, row_tokens
        self.length_groups, self.max_length = length_groups, max_length
        self.too_long: TooLong = too_long

    @abstractmethod
    def texts(self) -> Iterable[str]:
        """What the built-in tokenizer learns its tokens from: the same texts in every run."""

    @abstractmethod
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        """{outcome: (points reached, points possible)} of an answer to a sample of the set that is evaluated."""

    def kind(self, sample: int) -> str:
        """Which of `kinds` a sample of the set that is evaluated is of; nothing where there are none."""
        return ""

    @abstractmethod
    def describe(self, row: int) -> dict[str, Any]:
        """What `predict` writes beside the answer to its row."""

    def example(self, sample: int, text: str, blind: str) -> Example:
        """What is shown of a sample of the set that is evaluated, and of what the model answers; only where answers are
        graded one by one."""
        raise NotImplementedError

    @cached_property
    def tokenizer(self) -> ChatTokenizer:
        return load_tokenizer(self.tokenizer_source, self.texts() if self.tokenizer_source is None else ())

    @cached_property
    def chat_encoder(self) -> ChatEncoder:
        return ChatEncoder(self.tokenizer, self.marker)

    @property
    def evaluated(self) -> ChatSource:
        """The samples that are being evaluated."""
        stage = self.trainer.state.stage
        name = {"test": "test_set", "predict": "predict_set"}.get(str(stage and stage.value), "validation_set")
        return getattr(self, name).source

    def examples(self, source: ChatSource) -> ChatExamples:
        """A source to train on."""
        return self._make_examples(source)

    def stream(self, source: ChatRecords[Any]) -> ChatStream[Any]:
        """A source to train on that has an order, but neither a length nor random access."""
        return ChatStream(source, self._make_examples)

    @property
    def _make_examples(self) -> Callable[[ChatSource], ChatExamples]:
        return partial(
            ChatExamples,
            encoder=self.chat_encoder,
            row_tokens=self.row_tokens,
            length_groups=self.length_groups,
            max_length=self.max_length,
            too_long=self.too_long,
            leave_out=self.leaves_out_bad,
        )

    def questions(self, source: ChatSource, in_order: bool = False) -> ChatQuestions:
        """A source to evaluate, or to predict: then `in_order`."""
        return ChatQuestions(source, self.chat_encoder, in_order, leave_out=self.leaves_out_bad)
