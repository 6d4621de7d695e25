"""Provides a question set of question files and ingested documents."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.types.question import Question, QuestionSet
from engine.data.errors import KnownBadSampleError
from engine.determinism.stateless_rng import hash_integers, hash_permutation

_OPEN = 128
"""Number of documents whose chunks are kept in memory."""

_CHATS, _OTHERS = 0x6368, 0x6F74  # identifiers of random streams


class FileQuestionSet(QuestionSet):
    """A QuestionSet in which each question occurs once per epoch.

    Args:
        questions: in the order of the file.
        documents: ingested documents by name; at least the documents of the questions.
        groups: {document: group}; documents of a group have the same content, see splits.group_documents.
        per_chat: largest number of questions of a sample, all about one document and grouped anew in each epoch. 1:
            sample i is question i.
        seed: seed of the grouping and of `another_document`.
        title: name of the set in messages.
        broken: {document: error} of documents that questions refer to but that cannot be read.

    Raises:
        ValueError: an evidence page exceeds its document.
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
        self.all_questions, self._documents, self._groups = tuple(questions), dict(documents), dict(groups)
        self.per_chat, self.seed, self.title = per_chat, seed, title
        self._broken = dict(broken or {})
        self._open: OrderedDict[str, IngestedDocument] = OrderedDict()
        self._check_pages()
        by_document: dict[str, list[int]] = defaultdict(list)
        for index, question in enumerate(self.all_questions):
            by_document[question.document].append(index)
        self._by_document = list(by_document.values())
        self._chats = [
            (number, first)
            for number, indices in enumerate(self._by_document)
            for first in range(0, len(indices), per_chat)
        ]
        # The order is reversed, so that of each group the first name remains in the dict.
        readable = sorted(by_document.keys() - self._broken.keys(), reverse=True)
        self._different = sorted({self._groups[name]: name for name in readable}.items())

    @override
    def __len__(self) -> int:
        return len(self.all_questions) if self.per_chat == 1 else len(self._chats)

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker opens the documents itself.
        return {**self.__dict__, "_open": OrderedDict()}

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        """Return the sample's index, and the file and line of its first question."""
        return f"{index} ({self.questions(epoch, index)[0].where})"

    @override
    def questions(self, epoch: int, index: int) -> Sequence[Question]:
        if self.per_chat == 1:
            return (self.all_questions[index],)
        document, first = self._chats[index]
        indices = self._by_document[document]
        # Every epoch permutes the questions of a document; a chat has a fixed slice of the permutation.
        order = hash_permutation(len(indices), self.seed, _CHATS, epoch, document)
        return [self.all_questions[indices[drawn]] for drawn in order[first : first + self.per_chat]]

    @override
    def document(self, epoch: int, index: int) -> IngestedDocument:
        # All questions of a sample are about one document in every epoch, so the first of them suffices.
        first = index if self.per_chat == 1 else self._by_document[self._chats[index][0]][0]
        question = self.all_questions[first]
        if question.document in self._broken:
            raise KnownBadSampleError(
                f"{question.where}: {question.document} is skipped: {self._broken[question.document]}"
            )
        return self._open_document(question.document)

    @override
    def another_document(self, epoch: int, index: int) -> IngestedDocument:
        """Return a document with different content.

        Raises:
            ValueError: all documents have the same content.
        """
        own_group = self._groups[self.document(epoch, index).name]
        others = [name for group, name in self._different if group != own_group]
        if not others:
            raise ValueError(
                f"{self.title}: ablation and augmentation need another document, but all questions are about one; add "
                "documents, or disable shuffled figures and distractor pages"
            )
        return self._open_document(others[int(hash_integers(len(others), self.seed, _OTHERS, epoch, index))])

    def _open_document(self, name: str) -> IngestedDocument:
        # Returns the same object while it is cached: retrievers cache by identity.
        if name not in self._open:
            document = self._documents[name]
            self._open[name] = IngestedDocument(name, document.folder)
            if len(self._open) > _OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(name)
        return self._open[name]

    def _check_pages(self) -> None:
        numbers: dict[str, int] = {}
        for question in self.all_questions:
            if question.evidence_pages and question.document not in self._broken:
                name = question.document
                if name not in numbers:
                    numbers[name] = len(IngestedDocument(name, self._documents[name].folder).pages)
                if question.evidence_pages[-1] > numbers[name]:
                    raise ValueError(
                        f"{question.where}: evidence_pages: found {question.evidence_pages[-1]}, but {name} has pages "
                        f"1 to {numbers[name]}"
                    )
