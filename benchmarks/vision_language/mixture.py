"""Generates chats of very different lengths, like mixtures of instruction data for vision-language models."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from datamodules.multimodal.batch import ImageLayout, Images
from datamodules.multimodal.chat_dataset import ChatExamples, ChatItem
from datamodules.multimodal.images.tiling import Views, collate_views
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from engine.determinism.stateless_rng import hash_integers, hash_uniform

_SAMPLES = 1_000_000
_WORDS = [a + b + c for a in "bdfklmnprst" for b in "aeiou" for c in ("n", "r", "s", "t")]


class ChatKind(NamedTuple):
    """A kind of sample; the number of words is uniform between the minimum and the maximum."""

    share: float
    images: tuple[int, int]
    question: tuple[int, int]
    answer: tuple[int, int]


CHAT_KINDS = (
    ChatKind(0.30, (0, 0), (8, 40), (4, 60)),  # text only
    ChatKind(0.30, (1, 1), (6, 16), (8, 30)),  # captions and short answers
    ChatKind(0.25, (1, 1), (10, 30), (80, 260)),  # descriptions
    ChatKind(0.15, (2, 4), (10, 40), (10, 60)),  # several images
)


class MixtureSamples:
    """A source of random words and noise images, whose content does not affect the training time."""

    def __init__(self, layout: ImageLayout) -> None:
        self.layout = layout
        # Four views, which all samples share; training time does not depend on pixel values.
        noise = hash_integers(256, 7, np.arange(4 * 3 * layout.size**2)).astype(np.uint8)
        self._views = noise.reshape(4, 3, layout.size, layout.size)

    def __len__(self) -> int:
        return _SAMPLES

    def name(self, index: int, epoch: int = 0) -> str:
        """Return the sample's name in messages."""
        return str(index)

    def item(self, epoch: int, index: int) -> ChatItem:
        """Return the sample, which is a function of its index in every epoch."""
        # A hash of the index and not a generator: every variant and process gets the same sample for an index.
        drawn = hash_uniform(index, 0)
        kind = CHAT_KINDS[int(np.searchsorted(np.cumsum([kind.share for kind in CHAT_KINDS]), drawn, side="right"))]
        images, question, answer = (
            int(low + hash_integers(high - low + 1, index, stream))
            for stream, (low, high) in enumerate((kind.images, kind.question, kind.answer), 1)
        )
        asked = " ".join(["<image>"] * images + [_words(index, 4, question)])
        messages = [Message(role="user", content=asked), Message(role="assistant", content=_words(index, 5, answer))]
        views = Views(self._views[:images], np.zeros(images, np.int64))
        return ChatItem(messages, (self.layout.view_tokens,) * images, views)

    def collate(self, items: Sequence[Views]) -> Images:
        """Collate the views of several samples."""
        return collate_views(items, self.layout)


class Mixture(VisionLanguageDataModule):
    """DataModule of the mixture.

    Args:
        vocabulary: number of tokens of the language model; None for the tokenizer's.
        batches: see MultimodalDataModule and LockstepDataModule.
    """

    train_set: ChatExamples
    outcomes = ("exact",)

    def __init__(self, vocabulary: int | None = None, **batches: Any) -> None:
        super().__init__(**batches)
        self.vocabulary = vocabulary

    @cached_property
    @override
    def tokenizer(self) -> ChatTokenizer:
        tokenizer = super().tokenizer
        if self.vocabulary is not None:
            # The logits of a real vocabulary take much of a step; the tokenizer's own is tiny.
            tokenizer.vocabulary_size = self.vocabulary
        return tokenizer

    @override
    def setup(self, stage: str) -> None:
        self.train_set = self.examples(MixtureSamples(self.image_layout))
        self.validation_set = self.questions(MixtureSamples(self.image_layout))

    @override
    def texts(self) -> Iterable[str]:
        return (f" {word}" for word in _WORDS for _ in range(20))

    @override
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        return {}

    @override
    def describe(self, row: int) -> dict[str, Any]:
        return {}

    @override
    def images(self, sample: int) -> list[Any]:
        return []


def _words(index: int, stream: int, number: int) -> str:
    return " ".join(_WORDS[word] for word in hash_integers(len(_WORDS), index, stream, np.arange(number)))
