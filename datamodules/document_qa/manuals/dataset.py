"""Provides a question set of synthetic manuals."""

from functools import cached_property, lru_cache

import numpy as np
from typing_extensions import override

from datamodules.document_qa.manuals.devices import choose_one
from datamodules.document_qa.manuals.manual import Manual, manual_key
from datamodules.document_qa.manuals.question_sampler import QuestionSampler, SampledQuestion
from datamodules.document_qa.types.question import Question, QuestionSet
from datamodules.multimodal.synthetic_split import Split
from engine.determinism.stateless_rng import hash_bits

_ASKED = 0xA5C  # separates the questions' random numbers from the manuals'
_TRIES = 30  # attempts to find further different questions for a chat
_KEPT = 256  # cached manuals


class ManualQuestionSet(QuestionSet):
    """A QuestionSet of which each sample is a function of (seed, split, epoch, index).

    A training sample is one or more questions about a chapter of its own manual. A validation or test sample is one
    question, and `per_manual` samples are about the same manual.

    Args:
        sampler: generates manuals and questions.
        split: training, validation or test.
        size: number of samples.
        seed: seed of all random numbers.
        per_chat: number of questions of a training sample.
        per_manual: number of validation or test questions about each manual.
        fresh: generate new training samples in every epoch.
        one_page: all questions of a training sample are answered by the same pages.
        caption_epochs: number of initial epochs in which training samples about a drawing describe it as a whole,
            which is a richer signal for the vision tower.
    """

    def __init__(
        self,
        sampler: QuestionSampler,
        split: Split,
        size: int,
        seed: int = 0,
        per_chat: int = 1,
        per_manual: int = 1,
        fresh: bool = True,
        one_page: bool = False,
        caption_epochs: int = 0,
    ) -> None:
        self.sampler, self.split, self.size, self.seed = sampler, split, size, seed
        self.per_chat, self.per_manual, self.one_page = per_chat, per_manual, one_page
        self.caption_epochs = caption_epochs if split == Split.TRAIN else 0
        self.fresh = fresh and split == Split.TRAIN
        self._manual = lru_cache(_KEPT)(self._make_manual)

    @override
    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, object]:
        # The cache wraps a method and cannot be pickled; a spawned worker makes its own.
        return {name: value for name, value in self.__dict__.items() if name != "_manual"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._manual = lru_cache(_KEPT)(self._make_manual)

    @cached_property
    def manuals(self) -> int:
        """Number of manuals per epoch."""
        return self.size if self.split == Split.TRAIN else -(-self.size // self.per_manual)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.split.name.lower()} manuals of seed {self.seed})"

    @override
    def document(self, epoch: int, index: int) -> Manual:
        return self._manual(self._epoch(epoch), self._manual_number(index))

    @override
    def another_document(self, epoch: int, index: int) -> Manual:
        manual, epoch = self._manual_number(index), self._epoch(epoch)
        if self.manuals == 1:  # use a manual beyond the split
            return self._manual(epoch, 1)
        # A step of 1 to manuals - 1 never leads back to the own manual.
        step = 1 + int(self._random(epoch, index, -1).random() * (self.manuals - 1))
        return self._manual(epoch, (manual + step) % self.manuals)

    @override
    def questions(self, epoch: int, index: int) -> list[Question]:
        name = self.document(epoch, index).name
        return [
            Question(
                id=f"{name.removesuffix('.pdf')}-{index if self.split != Split.TRAIN else question_index}",
                question=asked.question,
                document=name,
                options=asked.options,
                answer=asked.answer,
                right=asked.right,
                answer_type=asked.answer_type,
                evidence_pages=asked.pages,
                source=asked.source,
            )
            for question_index, asked in enumerate(self.sample_questions(epoch, index))
        ]

    def sample_questions(self, epoch: int, index: int) -> list[SampledQuestion]:
        """Return the questions of a sample with all their properties."""
        is_captioned, epoch = epoch < self.caption_epochs, self._epoch(epoch)
        chapters = self.document(epoch, index).device.chapters
        chapter = choose_one(self._random(epoch, index, 0), chapters)
        if self.split != Split.TRAIN:
            return [self.sampler.ask(self._random(epoch, index, 1), chapter, test=self.split == Split.TEST)]
        asked: dict[str, SampledQuestion] = {}
        for attempt in range(1, self.per_chat + _TRIES):
            if len(asked) < self.per_chat:
                new = self.sampler.ask(self._random(epoch, index, attempt), chapter, test=False)
                first = next(iter(asked.values()), new)
                if is_captioned and first.source == "figure":
                    return [self.sampler.describe(self._random(epoch, index, attempt), chapter)]
                if not self.one_page or new.pages == first.pages:
                    asked.setdefault(new.question, new)
        return list(asked.values())

    def _epoch(self, epoch: int) -> int:
        return epoch if self.fresh else 0

    def _manual_number(self, index: int) -> int:
        """Return the number of a sample's manual."""
        return index if self.split == Split.TRAIN else index // self.per_manual

    def _make_manual(self, epoch: int, number: int) -> Manual:
        label = f"{epoch}-{number}" if self.fresh else str(number)
        key = manual_key(self.seed, self.split, epoch, number)
        return Manual(self.sampler.manuals, key, f"{self.split.name.lower()}-{label}.pdf")

    def _random(self, epoch: int, index: int, draw: int) -> np.random.Generator:
        key = hash_bits(_ASKED, manual_key(self.seed, self.split, epoch, index), draw)
        return np.random.Generator(np.random.Philox(key=int(key)))
