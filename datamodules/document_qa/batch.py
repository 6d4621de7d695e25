"""Defines batches and records of the document-QA family. Training chats are `ChatTrainBatch`, see multimodal.batch."""

from typing import NamedTuple

from torch import Tensor

from datamodules.document_qa.types.document import Chunk, ChunkKind
from datamodules.multimodal.batch import Images, Prompts, TokenRows
from engine.data.sample_loading import SkippedSample

# The variant of a prompt: what it contains. A prompt without chunk i of the context has the variant FIRST_CHUNK + i.
QUESTION_ONLY = -1
"""The question with its options and no document."""

WHOLE = 0
"""The whole context, and the options in their original order."""

FIRST_CHUNK = 1000
"""Variants 1 to FIRST_CHUNK - 1 are rotations of the options."""


class Continuations(NamedTuple):
    """N candidate answers of the assistant, each with its end-of-turn tokens."""

    tokens: Tensor  # [N, T] int64, padded on the right
    lengths: Tensor  # [N] int64, at least 1
    prompts: Tensor  # [N] int64, index of the prompt in EvaluationBatch.prompts that each answer follows
    options: Tensor  # [N] int64, index in Question.options; -1: the right answer of an open question


class RetrievedContext(NamedTuple):
    """The ranking of a question's pages, and the chunks that its context contains."""

    sample: int
    ranked: tuple[int, ...]  # page numbers, in the retriever's order
    chunks: tuple[Chunk, ...]  # of the whole context, in its order; FIRST_CHUNK + i is the prompt without chunk i


class EvaluationBatch(NamedTuple):
    """B questions with one or more prompts each. `prompts.samples` maps each prompt to its question."""

    prompts: Prompts  # P prompts; no padding samples
    variants: Tensor  # [P] int64, variant of each prompt: QUESTION_ONLY, WHOLE, a rotation, or FIRST_CHUNK + i
    images: Images  # of the P prompts, in their order
    continuations: Continuations  # the answers to score: all options, and known right answers of open questions
    skipped: tuple[SkippedSample, ...] = ()
    contexts: tuple[RetrievedContext, ...] = ()  # one for each of the B questions


class OptionTrainBatch(NamedTuple):
    """Questions for contrastive training: the options of a choice question are compared with each other.

    A choice question has one chat per option, with that option as the answer. An open question has one chat.
    """

    rows: TokenRows  # S chats
    encoder_input: Images  # of the S chats, in the order of `rows.samples`
    questions: Tensor  # [S] int64, index of each chat's question within the batch, 0 .. Q - 1
    right: Tensor  # [S] bool, whether the chat's answer is right
    skipped: tuple[SkippedSample, ...] = ()


class RetrievalPairs(NamedTuple):
    """B questions and P pages for contrastive training with in-batch negatives."""

    questions: TokenRows  # one chat per row, without labels and images
    pages: TokenRows  # one chat per row, without labels: the positive page of each question, then the hard negatives
    images: Images  # of the pages, in their order
    evidence: Tensor  # [B, E] int64, keys of all pages that answer each question, padded with 0
    keys: Tensor  # [P] int64, key of each page: equal for the same page in every batch, never 0
    skipped: tuple[SkippedSample, ...] = ()


class QuestionsAndPages(NamedTuple):
    """Questions and pages of an evaluation, to be encoded. Each occurs once; ranking follows after the last batch.

    `samples` of the rows are indices of questions and pages in their data set, see retrieval.ranking_dataset.
    """

    questions: TokenRows  # one chat per row, without labels and images
    pages: TokenRows  # one chat per row, without labels
    images: Images  # of the pages, in their order
    skipped: tuple[SkippedSample, ...] = ()


class Candidates(NamedTuple):
    """A question and the pages to rank for it, all pages of its document."""

    question: int  # index in the ranking data set
    pages: tuple[int, ...]  # indices of the document's pages in the ranking data set, in the document's order


class Ranking(NamedTuple):
    """The ranking of a document's pages for a question."""

    question: int  # index in the ranking data set
    pages: tuple[int, ...]  # page numbers from 1, best first; without pages that cannot be read
    scores: tuple[float, ...]  # cosine similarities, in descending order


class ModelAnswer(NamedTuple):
    """A model's answer to a question."""

    text: str  # generated text of an open question; "" for a choice question
    options: tuple[float, ...]  # log-likelihood per token of each option, averaged over its orders; () if open
    confidence: float  # 0 to 1: largest softmax of `options`; of an open question exp(mean log-likelihood)
    loss: float = 0.0  # cross-entropy summed over the right answer's tokens, in nats, with the options in first order
    terms: int = 0  # number of these tokens; 0 if the right answer is not known

    @property
    def chosen(self) -> int:
        """Index of the best option, the first among equals; -1 for an open question."""
        return self.options.index(max(self.options)) if self.options else -1


class Evidence(NamedTuple):
    """The importance of a chunk of the context for an answer."""

    page: int
    kind: ChunkKind
    box: tuple[float, float, float, float]  # see Chunk
    cost: float  # drop of the answer's log-likelihood without the chunk, in nats per token


class AnswerRecord(NamedTuple):
    """The answers to one question of an evaluation, from which all metrics and reports are computed."""

    sample: int  # index in the evaluated set
    whole: ModelAnswer  # with the context
    question_only: ModelAnswer | None = None  # without a document
    ranked: tuple[int, ...] = ()  # see RetrievedContext
    pages: tuple[int, ...] = ()  # page numbers in the context, in reading order
    evidence: tuple[Evidence, ...] = ()  # of the context's chunks; () if it was not computed
