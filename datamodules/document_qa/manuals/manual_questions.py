"""A split of manuals with questions about them."""

from functools import cached_property, lru_cache

import numpy as np

from datamodules.document_qa.manuals.asking import Asked, Asker
from datamodules.document_qa.manuals.devices import one
from datamodules.document_qa.manuals.manual import Manual, manual_key
from datamodules.document_qa.manuals.settings import Split
from datamodules.document_qa.question import Question
from engine.randomness import hash_bits

_ASKED = 0xA5C  # the questions' name beside what else is drawn for a manual
_TRIES = 30  # to find a question that a chat does not have yet
_KEPT = 256  # manuals


class ManualQuestions:
    """A `QuestionSet`: samples are functions of (seed, split, epoch, index), whoever asks for them.

    In training a sample is several questions about one chapter of a manual of its own. In validation and test it is
    one question, and `per_manual` of them are about the same manual.

    Args:
        asker: what manuals and questions are like.
        split: training, validation or test.
        size: samples.
        seed: of everything.
        per_chat: questions of a sample of the training.
        per_manual: questions about each manual of validation and test.
        fresh: other samples in every epoch of the training.
        one_page: the questions of a sample of the training follow from the same pages.
        describing: in so many epochs at the start a sample of the training that would ask about a drawing has it
            described instead: more is said of it at once, so a model learns to see by it.
    """

    def __init__(
        self,
        asker: Asker,
        split: Split,
        size: int,
        seed: int = 0,
        per_chat: int = 1,
        per_manual: int = 1,
        fresh: bool = True,
        one_page: bool = False,
        describing: int = 0,
    ) -> None:
        self.asker, self.split, self.size, self.seed = asker, split, size, seed
        self.per_chat, self.per_manual, self.one_page = per_chat, per_manual, one_page
        self.describing = describing if split == Split.TRAIN else 0
        self.fresh = fresh and split == Split.TRAIN
        self._manual = lru_cache(_KEPT)(self._made)

    def __len__(self) -> int:
        return self.size

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_manual"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._manual = lru_cache(_KEPT)(self._made)

    @cached_property
    def manuals(self) -> int:
        """How many there are, of an epoch."""
        return self.size if self.split == Split.TRAIN else -(-self.size // self.per_manual)

    def name(self, index: int, epoch: int = 0) -> str:
        """The sample in messages."""
        return f"{index} ({self.split.name.lower()} manuals of seed {self.seed})"

    def document(self, epoch: int, index: int) -> Manual:
        return self._manual(self._epoch(epoch), self._of(index))

    def another_document(self, epoch: int, index: int) -> Manual:
        manual, epoch = self._of(index), self._epoch(epoch)
        if self.manuals == 1:  # the first one that is not in the split
            return self._manual(epoch, 1)
        step = 1 + int(self._random(epoch, index, -1).random() * (self.manuals - 1))
        return self._manual(epoch, (manual + step) % self.manuals)

    def questions(self, epoch: int, index: int) -> list[Question]:
        name = self.document(epoch, index).name
        return [
            Question(
                f"{name.removesuffix('.pdf')}-{index if self.split != Split.TRAIN else place}",
                asked.question, name, asked.options, asked.answer, asked.right, asked.answer_type, asked.pages,
                asked.source,
            )
            for place, asked in enumerate(self.asked(epoch, index))
        ]  # fmt: skip

    def asked(self, epoch: int, index: int) -> list[Asked]:
        """The same with all that is known of them."""
        describing, epoch = epoch < self.describing, self._epoch(epoch)
        chapters = self.document(epoch, index).device.chapters
        chapter = one(self._random(epoch, index, 0), chapters)
        if self.split != Split.TRAIN:
            return [self.asker.ask(self._random(epoch, index, 1), chapter, test=self.split == Split.TEST)]
        asked: dict[str, Asked] = {}
        for attempt in range(1, self.per_chat + _TRIES):
            if len(asked) < self.per_chat:
                new = self.asker.ask(self._random(epoch, index, attempt), chapter, test=False)
                first = next(iter(asked.values()), new)
                if describing and first.source == "figure":
                    return [self.asker.describe(self._random(epoch, index, attempt), chapter)]
                if not self.one_page or new.pages == first.pages:
                    asked.setdefault(new.question, new)
        return list(asked.values())

    def _epoch(self, epoch: int) -> int:
        return epoch if self.fresh else 0

    def _of(self, index: int) -> int:
        """The number of a sample's manual."""
        return index if self.split == Split.TRAIN else index // self.per_manual

    def _made(self, epoch: int, number: int) -> Manual:
        place = f"{epoch}-{number}" if self.fresh else str(number)
        key = manual_key(self.seed, self.split, epoch, number)
        return Manual(self.asker.manuals, key, f"{self.split.name.lower()}-{place}.pdf")

    def _random(self, epoch: int, index: int, draw: int) -> np.random.Generator:
        key = hash_bits(_ASKED, manual_key(self.seed, self.split, epoch, index), draw)
        return np.random.Generator(np.random.Philox(key=int(key)))
