"""Questions that somebody has written, about documents that have been ingested, as a QuestionSet."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.question import Question
from datamodules.multimodal.unusable import KnownUnusable
from engine.randomness import hash_integers, hash_permutation

_OPEN = 128
"""Documents whose chunks are kept in memory."""

_CHATS, _OTHERS = 0x6368, 0x6F74  # what a hash is for


class WrittenQuestions:
    """A QuestionSet; each question once in an epoch.

    Args:
        questions: in their order.
        documents: by name, at least those that are asked about.
        groups: {document: its group}; documents of one group are the same, see splits.groups_of.
        per_chat: questions of a sample at most, all about one document, other ones together in each epoch; 1: a sample
            is a question, in the order of the questions.
        seed: which ones come together, and which other document is another.
        title: of the set, in messages.
        broken: {document: why it cannot be read}, of those that are asked about but are not among the documents.

    Raises:
        ValueError: a question's evidence is on a page that its document has not.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        documents: Mapping[str, IngestedDocument],
        groups: Mapping[str, str],
        per_chat: int = 1,
        seed: int = 0,
        title: str = "questions",
        broken: Mapping[str, str] | None = None,
    ) -> None:
        self.asked, self._documents, self._groups = tuple(questions), dict(documents), dict(groups)
        self.per_chat, self.seed, self.title = per_chat, seed, title
        self._broken = dict(broken or {})
        self._open: OrderedDict[str, IngestedDocument] = OrderedDict()
        self._check_pages()
        by_document: dict[str, list[int]] = defaultdict(list)
        for place, question in enumerate(self.asked):
            by_document[question.document].append(place)
        self._by_document = list(by_document.values())
        self._chats = [
            (number, first)
            for number, places in enumerate(self._by_document)
            for first in range(0, len(places), per_chat)
        ]
        whole = sorted(by_document.keys() - self._broken.keys(), reverse=True)
        self._different = sorted({self._groups[name]: name for name in whole}.items())

    def __len__(self) -> int:
        return len(self.asked) if self.per_chat == 1 else len(self._chats)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict()}

    def name(self, index: int, epoch: int = 0) -> str:
        """The sample's number, and the file and line of its first question."""
        return f"{index} ({self.questions(epoch, index)[0].where})"

    def questions(self, epoch: int, index: int) -> Sequence[Question]:
        if self.per_chat == 1:
            return (self.asked[index],)
        document, first = self._chats[index]
        places = self._by_document[document]
        order = hash_permutation(len(places), self.seed, _CHATS, epoch, document)
        return [self.asked[places[place]] for place in order[first : first + self.per_chat]]

    def document(self, epoch: int, index: int) -> IngestedDocument:
        """
        Raises:
            KnownUnusable: it is broken.
        """
        # All questions of a sample are about one document, whatever the epoch.
        asked = self.asked[index if self.per_chat == 1 else self._by_document[self._chats[index][0]][0]]
        if asked.document in self._broken:
            raise KnownUnusable(f"{asked.where}: {asked.document} is left out: {self._broken[asked.document]}")
        return self._opened(asked.document)

    def another_document(self, epoch: int, index: int) -> IngestedDocument:
        """One of another content.

        Raises:
            ValueError: there is none.
        """
        own = self._groups[self.document(epoch, index).name]
        others = [name for group, name in self._different if group != own]
        if not others:
            raise ValueError(
                f"{self.title}: all questions are about one document, but another one is asked for (its figures, or "
                "its pages as distractors): add documents, or leave such ablation and augmentation out"
            )
        return self._opened(others[int(hash_integers(len(others), self.seed, _OTHERS, epoch, index))])

    def _opened(self, name: str) -> IngestedDocument:
        # Always the same object while it is kept, for those who keep something by it.
        if name not in self._open:
            kept = self._documents[name]
            self._open[name] = IngestedDocument(name, kept.folder)
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]

    def _check_pages(self) -> None:
        numbers: dict[str, int] = {}
        for question in self.asked:
            if question.evidence_pages and question.document not in self._broken:
                name = question.document
                if name not in numbers:
                    numbers[name] = len(IngestedDocument(name, self._documents[name].folder).pages)
                if question.evidence_pages[-1] > numbers[name]:
                    raise ValueError(
                        f"{question.where}: evidence_pages: found {question.evidence_pages[-1]}, but {name} has pages "
                        f"1 to {numbers[name]}"
                    )
