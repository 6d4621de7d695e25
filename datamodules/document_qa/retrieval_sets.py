"""Questions and pages for a dense retriever: pairs to learn from, and all pages of documents to be ranked."""

import hashlib
import logging
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.document_qa.batch import Candidates, QuestionsAndPages, RetrievalPairs
from datamodules.document_qa.context import ContextBuilder, joined_views
from datamodules.document_qa.document import Document
from datamodules.document_qa.prompt import where
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.multimodal.batch import Chat, LeftOut
from datamodules.multimodal.chat import ChatEncoder
from datamodules.multimodal.chat_sets import ChatItem, TooLong, drawn, encoded, usable
from datamodules.multimodal.images import Views, collate_views, no_views
from datamodules.multimodal.packing import one_per_row
from datamodules.multimodal.unusable import UnusableSample
from engine.randomness import global_seed, hash_integers, hash_permutation
from engine.sampling import Draw

log = logging.getLogger("lockstep")

_RIGHT, _WRONG = 0x51647, 0x3F0A6  # names of streams of random numbers


class Read(NamedTuple):
    """A question or a page, as tower and language model are to read it."""

    chat: Chat  # up to where the assistant is to speak
    views: Views


class RetrievalReader:
    """Makes chats of questions and pages. A page looks as it does in a reader's context.

    Args:
        builder: of contexts.
        encoder: of chats.
    """

    def __init__(self, builder: ContextBuilder, encoder: ChatEncoder) -> None:
        self.builder, self.encoder = builder, encoder

    @property
    def pad(self) -> int:
        """The padding token."""
        return self.encoder.tokenizer.pad

    def question(self, question: Question) -> Read:
        """With its options: they are words that a page may have.

        Raises:
            UnusableSample: it is no chat.
        """
        asked = self.builder.prompter.asks(question)
        return self._read(asked, no_views(self.builder.layout), (), where(question))

    def page(self, document: Document, number: int) -> Read:
        """
        Raises:
            UnusableSample: it is no chat.
        """
        shown = self.builder.context(document, [number])
        views = joined_views(shown, self.builder.layout)
        return self._read(shown.text, views, self.builder.features(shown.views), f"page {number} of {document.name}")

    def _read(self, text: str, views: Views, counts: tuple[int, ...], name: str) -> Read:
        messages = self.builder.prompter.messages("", [(text, None)])
        return Read(encoded(self.encoder.prompt, ChatItem(messages, counts, views), name), views)


class _Pair(NamedTuple):
    question: Read
    right: Read
    wrong: list[Read]
    evidence: list[int]  # keys
    keys: list[int]  # of `right` and `wrong`


class RetrievalExamples(Dataset[RetrievalPairs]):
    """Micro-batches to train on. A question that names no evidence is in no batch.

    Of several questions of a sample one is drawn, of several pages of evidence one is the right one, and the wrong ones
    are drawn among the other pages of the document: by (seed, epoch, sample) alone.

    Args:
        questions: the samples.
        reader: makes chats of them.
        hard_negatives: wrong pages of its own document that come with each question; where there are fewer, all.
        max_length: tokens of the longest page, or question; None for any.
        too_long: `stop`: a longer one is an error that names its sample; `drop`: the sample is left out.
        leave_out: leave samples out that cannot be used, too; otherwise they are errors.
    """

    def __init__(
        self,
        questions: QuestionSet,
        reader: RetrievalReader,
        hard_negatives: int = 3,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        leave_out: bool = False,
    ) -> None:
        self.questions, self.reader, self.hard_negatives = questions, reader, hard_negatives
        self.max_length, self.too_long, self.leave_out = max_length, too_long, leave_out

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, draw: Draw) -> RetrievalPairs:
        found, indices, left_out = usable(drawn(draw), lambda index: self._made(draw.epoch, index), self.leave_out)
        asked = np.array([bool(pairs) for pairs in found], np.bool_)
        made, indices = [pair for pairs in found for pair in pairs], indices[asked]
        pages = [pair.right for pair in made] + [page for pair in made for page in pair.wrong]
        owners = np.concatenate([indices, np.repeat(indices, [len(pair.wrong) for pair in made])])
        most = max((len(pair.evidence) for pair in made), default=1)
        evidence = [pair.evidence + [0] * (most - len(pair.evidence)) for pair in made]
        keys = [pair.keys[0] for pair in made] + [key for pair in made for key in pair.keys[1:]]
        return RetrievalPairs(
            one_per_row([pair.question.chat for pair in made], indices, self.reader.pad),
            one_per_row([page.chat for page in pages], owners, self.reader.pad),
            collate_views([page.views for page in pages], self.reader.builder.layout),
            torch.tensor(evidence, dtype=torch.int64).view(len(made), most),
            torch.tensor(keys, dtype=torch.int64),
            left_out,
        )

    def _made(self, epoch: int, index: int) -> list[_Pair] | LeftOut:
        """Nothing or one of a sample."""
        questions = [question for question in self.questions.questions(epoch, index) if question.evidence_pages]
        if not questions:
            return []
        document, name = self.questions.document(epoch, index), self.questions.name(index, epoch)
        place = (global_seed(), epoch, index)
        question = questions[hash_integers(len(questions), *place)]
        evidence = evidence_of(question, document)
        right = evidence[hash_integers(len(evidence), _RIGHT, *place)]
        others = [number for number in range(1, len(document.pages) + 1) if number not in evidence]
        order = hash_permutation(len(others), _WRONG, *place)[: self.hard_negatives]
        numbers = [right, *(others[other] for other in order)]
        asked, pages = self.reader.question(question), [self.reader.page(document, number) for number in numbers]
        longest = max(len(read.chat.tokens) for read in (asked, *pages))
        if self.max_length is not None and longest > self.max_length:
            what = f"sample {name}: a page, or the question, has {longest} tokens, but max_length is {self.max_length}"
            if self.too_long == "drop":
                return LeftOut("too_long", what, index)
            raise ValueError(f"{what}; raise it, or leave such samples out: data.init_args.too_long drop")
        keys, known = ([key_of(question.document, page) for page in some] for some in (numbers, evidence))
        return [_Pair(asked, pages[0], pages[1:], known, keys)]


class Unit(NamedTuple):
    """A question, or a page, of an evaluation."""

    part: int  # the set that it is of
    sample: int  # the question's number there, or that of one about the page's document
    page: int = 0  # its number; 0: it is the question


class RankedSet(Dataset[QuestionsAndPages]):
    """Questions and all pages of their documents, one document after the other, each once, in batches of any size.

    Args:
        parts: sets of questions; the ids of all questions differ. Of documents with the same name within a set there is
            one.
        reader: makes chats of them.
        leave_out: leave questions and pages out that cannot be used; otherwise they are errors.
        number: how many of the questions and pages, in whole documents, at least one; None for all.
    """

    def __init__(
        self, parts: Sequence[QuestionSet], reader: RetrievalReader, leave_out: bool = False, number: int | None = None
    ) -> None:
        self.parts, self.reader, self.leave_out, self.number = parts, reader, leave_out, number
        self._last: tuple[tuple[int, int], Document] | None = None  # its pages follow one another

    def first(self, number: int) -> "RankedSet":
        """The first documents alone."""
        fewer = RankedSet(self.parts, self.reader, self.leave_out, number)
        if len(fewer) > number:
            log.warning("WARNING: so few batches hold %d of the first document's pages; only these are ranked", number)
        return fewer

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, draw: Draw) -> QuestionsAndPages:
        indices = drawn(draw)
        read, indices, left_out = usable(indices[indices < len(self)], self._read, self.leave_out)
        is_page = np.array([self._units[index].page > 0 for index in indices], np.bool_)
        questions, pages = ([one for one, of in zip(read, is_page, strict=True) if of == kind] for kind in (0, 1))
        return QuestionsAndPages(
            one_per_row([one.chat for one in questions], indices[~is_page], self.reader.pad),
            one_per_row([one.chat for one in pages], indices[is_page], self.reader.pad),
            collate_views([one.views for one in pages], self.reader.builder.layout),
            left_out,
        )

    @cached_property
    def candidates(self) -> list[Candidates]:
        """Of each question, in the order of the parts."""
        return sorted(self._made[1], key=lambda one: self._units[one.question])

    def unit(self, number: int) -> Unit:
        """The question or page with a number."""
        return self._units[number]

    def question(self, unit: int) -> Question:
        """The question with a number."""
        part, sample, _ = self._units[unit]
        return self.parts[part].questions(0, sample)[0]

    def document(self, unit: int) -> Document:
        """That of a question, or page, with a number."""
        part, sample, _ = self._units[unit]
        return self._document(part, sample)

    @property
    def _units(self) -> list[Unit]:
        return self._made[0]

    @cached_property
    def _made(self) -> tuple[list[Unit], list[Candidates]]:
        units: list[Unit] = []
        candidates: list[Candidates] = []
        for part, samples in self._documents():
            pages = self._pages(part, samples[0])
            if self.number is not None and units and len(units) + len(samples) + pages > self.number:
                break
            start = len(units)
            units += [Unit(part, sample) for sample in samples]
            numbers = tuple(range(len(units), len(units) + pages))
            units += [Unit(part, samples[0], page) for page in range(1, pages + 1)]
            candidates += [Candidates(start + place, numbers) for place in range(len(samples))]
        return units, candidates

    def _documents(self) -> list[tuple[int, list[int]]]:
        """Of each one its set and the questions about it."""
        found: dict[tuple[int, str | int], list[int]] = {}
        for part, questions in enumerate(self.parts):
            for sample in range(len(questions)):
                found.setdefault((part, self._name(part, sample)), []).append(sample)
        return [(part, samples) for (part, _), samples in found.items()]

    def _name(self, part: int, sample: int) -> str | int:
        try:
            return self.parts[part].questions(0, sample)[0].document
        except UnusableSample:  # it is left out, or an error, when it is drawn
            return sample

    def _pages(self, part: int, sample: int) -> int:
        try:
            return len(self._document(part, sample).pages)
        except UnusableSample:
            return 0

    def _document(self, part: int, sample: int) -> Document:
        if self._last is None or self._last[0] != (part, sample):
            self._last = (part, sample), self.parts[part].document(0, sample)
        return self._last[1]

    def _read(self, number: int) -> Read:
        unit = self._units[number]
        document = self._document(unit.part, unit.sample)
        return self.reader.page(document, unit.page) if unit.page else self.reader.question(self.question(number))


def evidence_of(question: Question, document: Document) -> list[int]:
    """Numbers of the pages that answer a question, each once.

    Raises:
        UnusableSample: the document does not have them.
    """
    pages, number = sorted(set(question.evidence_pages)), len(document.pages)
    if pages and not 1 <= pages[0] <= pages[-1] <= number:
        raise UnusableSample(
            f"{where(question)}: evidence_pages are {pages}, but {document.name} has pages 1 to {number}"
        )
    return pages


def key_of(document: str, page: int) -> int:
    """64 bits that stand for a page, on every process alike; never 0."""
    digest = hashlib.sha256(f"{document}\n{page}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1
