"""Pairs of a question and the page that answers it, with wrong pages of the same document, to learn from."""

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.document_qa.batch import RetrievalPairs
from datamodules.document_qa.document import Document
from datamodules.document_qa.prompt import where
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.document_qa.retrieval_reader import Read, RetrievalReader
from datamodules.multimodal.chat_sets import TooLong, drawn
from datamodules.multimodal.images import collate_views
from datamodules.multimodal.packing import one_per_row
from datamodules.multimodal.unusable import UnusableSample
from engine.bad_samples import LeftOut, usable
from engine.randomness import global_seed, hash_integers, hash_permutation
from engine.sampling import Draw

_RIGHT, _WRONG = 0x51647, 0x3F0A6  # names of streams of random numbers


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
        document, name = self.reader.document(self.questions, epoch, index), self.questions.name(index, epoch)
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
