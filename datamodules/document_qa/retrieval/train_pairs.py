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
from engine.data.errors import BadSampleError
from engine.data.sample_loading import SkippedSample, load_samples
from engine.data.samplers import MicroBatchRequest
from engine.determinism.stateless_rng import global_seed, hash_integers, hash_permutation

_POSITIVE_STREAM, _NEGATIVE_STREAM = 0x51647, 0x3F0A6  # identifiers of random streams


class _Pair(NamedTuple):
    """A question with the page that answers it and pages that do not."""

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
        input_builder: encodes questions and pages.
        hard_negatives: number of negative pages of the same document per question, if it has as many.
        max_length: largest number of tokens of a page or question; None for no limit.
        too_long: `stop`: a longer input is an error that names its sample; `drop`: the sample is skipped.
        skip_bad: also skip bad samples; otherwise they raise.
    """

    def __init__(
        self,
        questions: QuestionSet,
        input_builder: EncoderInputBuilder,
        hard_negatives: int = 3,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        skip_bad: bool = False,
    ) -> None:
        self.questions, self.input_builder, self.hard_negatives = questions, input_builder, hard_negatives
        self.max_length, self.too_long, self.skip_bad = max_length, too_long, skip_bad

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, request: MicroBatchRequest) -> RetrievalPairs:
        loaded, indices, skipped = load_samples(
            sample_indices(request), lambda index: self._make_pair(request.epoch, index), self.skip_bad
        )
        pairs = [pair for pair in loaded if pair is not None]
        indices = indices[np.array([pair is not None for pair in loaded], np.bool_)]
        pages = [pair.positive for pair in pairs] + [page for pair in pairs for page in pair.negatives]
        owners = np.concatenate([indices, np.repeat(indices, [len(pair.negatives) for pair in pairs])])
        width = max((len(pair.evidence) for pair in pairs), default=1)
        # 0 is the key of no page, so it pads lists of different lengths.
        evidence = [pair.evidence + [0] * (width - len(pair.evidence)) for pair in pairs]
        keys = [pair.keys[0] for pair in pairs] + [key for pair in pairs for key in pair.keys[1:]]
        return RetrievalPairs(
            one_per_row([pair.question.chat for pair in pairs], indices, self.input_builder.pad),
            one_per_row([page.chat for page in pages], owners, self.input_builder.pad),
            collate_views([page.views for page in pages], self.input_builder.context_builder.layout),
            torch.tensor(evidence, dtype=torch.int64).view(len(pairs), width),
            torch.tensor(keys, dtype=torch.int64),
            skipped,
        )

    def _make_pair(self, epoch: int, index: int) -> _Pair | SkippedSample | None:
        """Return the pair of a sample; None if it has no evidence page."""
        questions = [question for question in self.questions.questions(epoch, index) if question.evidence_pages]
        if not questions:
            return None
        document = self.input_builder.document(self.questions, epoch, index)
        coordinates = (global_seed(), epoch, index)
        question = questions[hash_integers(len(questions), *coordinates)]
        evidence = evidence_pages_of(question, document)
        numbers = self._draw_pages(evidence, len(document.pages), coordinates)
        encoded = self.input_builder.question(question)
        pages = [self.input_builder.page(document, number) for number in numbers]
        longest = max(len(item.chat.tokens) for item in (encoded, *pages))
        if self.max_length is not None and longest > self.max_length:
            name = self.questions.name(index, epoch)
            what = f"sample {name}: its question or a page has {longest} tokens, but max_length is {self.max_length}"
            if self.too_long == "drop":
                return SkippedSample("too_long", what, index)
            raise ValueError(f"{what}; increase it, or skip such samples with data.init_args.too_long drop")
        keys = [page_key(question.document, number) for number in numbers]
        evidence_keys = [page_key(question.document, number) for number in evidence]
        return _Pair(encoded, pages[0], pages[1:], evidence_keys, keys)

    def _draw_pages(self, evidence: list[int], num_pages: int, coordinates: tuple[int, int, int]) -> list[int]:
        """Draw the numbers of the positive page and of the negative pages by (seed, epoch, sample)."""
        positive = evidence[hash_integers(len(evidence), _POSITIVE_STREAM, *coordinates)]
        candidates = [number for number in range(1, num_pages + 1) if number not in evidence]
        order = hash_permutation(len(candidates), _NEGATIVE_STREAM, *coordinates)[: self.hard_negatives]
        return [positive, *(candidates[position] for position in order)]


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
