"""Provides question-page pairs with hard negatives as a data set, to train a dense retriever."""

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.document_qa.batch import RetrievalPairs
from datamodules.document_qa.prompt.prompt import question_label
from datamodules.document_qa.retrieval.encoder_inputs import EncoderInput, EncoderInputBuilder
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, QuestionSet
from datamodules.multimodal.chat_dataset import TooLong, sample_indices
from datamodules.multimodal.images.tiling import collate_views
from datamodules.multimodal.text.packing import one_per_row
from engine.data.bad_samples import SkippedSample, load_samples
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from engine.determinism.stateless_rng import global_seed, hash_integers, hash_permutation

_RIGHT, _WRONG = 0x51647, 0x3F0A6  # identifiers of random streams


class _Pair(NamedTuple):
    question: EncoderInput
    positive: EncoderInput
    negatives: list[EncoderInput]
    evidence: list[int]  # page keys
    keys: list[int]  # of `positive` and `negatives`


class RetrievalPairDataset(Dataset[RetrievalPairs]):
    """Micro-batches of question-page pairs. Questions without evidence pages are not used.

    The question (if a sample has several), the positive page (if the evidence is on several) and the hard negatives are
    drawn by (seed, epoch, sample).

    Args:
        questions: the samples.
        reader: encodes questions and pages.
        hard_negatives: number of negative pages of the same document per question, if it has as many.
        max_length: largest number of tokens of a page or question; None for no limit.
        too_long: `stop`: a longer input is an error that names its sample; `drop`: the sample is skipped.
        skip_bad: also skip bad samples; otherwise they raise.
    """

    def __init__(
        self,
        questions: QuestionSet,
        reader: EncoderInputBuilder,
        hard_negatives: int = 3,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        skip_bad: bool = False,
    ) -> None:
        self.questions, self.reader, self.hard_negatives = questions, reader, hard_negatives
        self.max_length, self.too_long, self.skip_bad = max_length, too_long, skip_bad

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, draw: MicroBatchRequest) -> RetrievalPairs:
        loaded, indices, skipped = load_samples(
            sample_indices(draw), lambda index: self._make_pairs(draw.epoch, index), self.skip_bad
        )
        # A sample without evidence has no pair.
        has_pair = np.array([bool(sample_pairs) for sample_pairs in loaded], np.bool_)
        pairs, indices = [pair for sample_pairs in loaded for pair in sample_pairs], indices[has_pair]
        pages = [pair.positive for pair in pairs] + [page for pair in pairs for page in pair.negatives]
        owners = np.concatenate([indices, np.repeat(indices, [len(pair.negatives) for pair in pairs])])
        most = max((len(pair.evidence) for pair in pairs), default=1)
        # 0 is the key of no page, so it pads lists of different lengths.
        evidence = [pair.evidence + [0] * (most - len(pair.evidence)) for pair in pairs]
        keys = [pair.keys[0] for pair in pairs] + [key for pair in pairs for key in pair.keys[1:]]
        return RetrievalPairs(
            one_per_row([pair.question.chat for pair in pairs], indices, self.reader.pad),
            one_per_row([page.chat for page in pages], owners, self.reader.pad),
            collate_views([page.views for page in pages], self.reader.context_builder.layout),
            torch.tensor(evidence, dtype=torch.int64).view(len(pairs), most),
            torch.tensor(keys, dtype=torch.int64),
            skipped,
        )

    def _make_pairs(self, epoch: int, index: int) -> list[_Pair] | SkippedSample:
        """Return the pair of a sample; an empty list if it has no evidence page."""
        questions = [question for question in self.questions.questions(epoch, index) if question.evidence_pages]
        if not questions:
            return []
        document, name = self.reader.document(self.questions, epoch, index), self.questions.name(index, epoch)
        coordinates = (global_seed(), epoch, index)
        question = questions[hash_integers(len(questions), *coordinates)]
        evidence = evidence_pages_of(question, document)
        right = evidence[hash_integers(len(evidence), _RIGHT, *coordinates)]
        others = [number for number in range(1, len(document.pages) + 1) if number not in evidence]
        order = hash_permutation(len(others), _WRONG, *coordinates)[: self.hard_negatives]
        numbers = [right, *(others[other] for other in order)]
        encoded, pages = self.reader.question(question), [self.reader.page(document, number) for number in numbers]
        longest = max(len(item.chat.tokens) for item in (encoded, *pages))
        if self.max_length is not None and longest > self.max_length:
            what = f"sample {name}: its question or a page has {longest} tokens, but max_length is {self.max_length}"
            if self.too_long == "drop":
                return SkippedSample("too_long", what, index)
            raise ValueError(f"{what}; increase it, or skip such samples with data.init_args.too_long drop")
        keys, evidence_keys = ([page_key(question.document, page) for page in some] for some in (numbers, evidence))
        return [_Pair(encoded, pages[0], pages[1:], evidence_keys, keys)]


def evidence_pages_of(question: Question, document: Document) -> list[int]:
    """Return the numbers of a question's evidence pages, each once.

    Raises:
        BadSampleError: the document does not have them.
    """
    pages, number = sorted(set(question.evidence_pages)), len(document.pages)
    if pages and not 1 <= pages[0] <= pages[-1] <= number:
        raise BadSampleError(
            f"{question_label(question)}: evidence_pages are {pages}, but {document.name} has pages 1 to {number}"
        )
    return pages


def page_key(document: str, page: int) -> int:
    """Return a 64-bit key of a page, the same on every rank; never 0."""
    digest = hashlib.sha256(f"{document}\n{page}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little", signed=True) or 1
