"""Batches of the document-QA family. To learn answers: `Examples` of Images, see multimodal.batch; the rest is here."""

from typing import NamedTuple

from torch import Tensor

from datamodules.document_qa.document import Chunk, ChunkKind
from datamodules.multimodal.batch import Images, Prompts, Rows
from engine.bad_samples import LeftOut

# What a prompt shows. Prompts with a chunk left out are FIRST_CHUNK + the chunk's place in the context.
QUESTION_ONLY = -1
"""The question with its options and no document: what can be known from its words."""

WHOLE = 0
"""The context whole; with options in their first order."""

FIRST_CHUNK = 1000
"""1 to FIRST_CHUNK - 1 are further orders of the options."""


class Continuations(NamedTuple):
    """N texts that an assistant may go on with, each with the end of its turn."""

    tokens: Tensor  # [N, T] int64, padded on the right
    lengths: Tensor  # [N] int64, at least 1
    prompts: Tensor  # [N] int64, row of Asked.prompts that each one follows
    options: Tensor  # [N] int64, place in Question.options; -1: the right answer of an open question


class Shown(NamedTuple):
    """What the retriever said about a question, and what its context shows for it."""

    sample: int
    ranked: tuple[int, ...]  # numbers of pages, the retriever's best first
    chunks: tuple[Chunk, ...]  # of the whole context, in its order; FIRST_CHUNK + i is the prompt without chunk i


class Asked(NamedTuple):
    """B questions, each as one prompt or several. `prompts.samples` says whose each prompt is."""

    prompts: Prompts  # P of them; no filler
    variants: Tensor  # [P] int64, QUESTION_ONLY, WHOLE, another order of the options, or a chunk left out
    images: Images  # of the P prompts, in their order
    continuations: Continuations  # what is scored: all options, right answers that are known
    left_out: tuple[LeftOut, ...] = ()
    shown: tuple[Shown, ...] = ()  # of the B questions


class OptionExamples(NamedTuple):
    """Choice questions to learn from by comparing their options, open ones by their answer alone.

    One chat for each option of a question, with that option as the answer; of an open question one, with the answer.
    """

    rows: Rows  # its S chats
    modality: Images  # of the S chats, in the order of `rows.samples`
    questions: Tensor  # [S] int64, number of each chat's question within the batch, 0 .. Q - 1
    right: Tensor  # [S] bool, whether it is the right answer
    left_out: tuple[LeftOut, ...] = ()


class RetrievalPairs(NamedTuple):
    """B questions and P pages to learn from: each page of the global batch that does not answer a question is wrong."""

    questions: Rows  # one chat a row, nothing supervised, none has features
    pages: Rows  # one chat a row, nothing supervised: the right page of each question, then further wrong ones
    images: Images  # of the pages, in their order
    evidence: Tensor  # [B, E] int64, keys of all pages that answer each question, padded with 0
    keys: Tensor  # [P] int64, of each page: the same page has the same one in every batch, none has 0
    left_out: tuple[LeftOut, ...] = ()


class QuestionsAndPages(NamedTuple):
    """Some of an evaluation's questions and pages, each of which comes once; pages are ranked when all have been read.

    `samples` of the rows are the numbers of questions and pages in their set, see ranked_set.
    """

    questions: Rows  # one chat a row, nothing supervised, none has features
    pages: Rows  # one chat a row, nothing supervised
    images: Images  # of the pages, in their order
    left_out: tuple[LeftOut, ...] = ()


class Candidates(NamedTuple):
    """What is ranked for a question."""

    question: int  # its number in QuestionsAndPages
    pages: tuple[int, ...]  # numbers of its document's pages in QuestionsAndPages, in the order of the document


class Ranking(NamedTuple):
    """How a question's pages were ranked."""

    question: int  # its number in QuestionsAndPages
    pages: tuple[int, ...]  # in the document, from 1, the best first; one that cannot be used is missing
    scores: tuple[float, ...]  # cosines, falling


class Said(NamedTuple):
    """What a model says to a question, in plain numbers."""

    text: str  # that it wrote, of an open question; of a choice ""
    options: tuple[float, ...]  # log-likelihood of each option per token, the mean over its orders; of an open one ()
    confidence: float  # 0 to 1: of the best option (softmax of `options`), of an open one exp(mean of its tokens)
    loss: float = 0.0  # sum over the right answer's tokens, nats, of the prompt with the options in their first order
    terms: int = 0  # how many; 0 where the right answer is not known

    @property
    def chosen(self) -> int:
        """Place of the best option, the first one of equal ones; -1: the question is open."""
        return self.options.index(max(self.options)) if self.options else -1


class Evidence(NamedTuple):
    """How much a chunk of the context matters to what was said."""

    page: int
    kind: ChunkKind
    box: tuple[float, float, float, float]  # see Chunk
    cost: float  # by how many nats per token the answer's log-likelihood falls without it; the evidence costs most


class AnswerRecord(NamedTuple):
    """One question of an evaluation: all that its figures and reports are made of."""

    sample: int  # its number in the set that is evaluated
    whole: Said  # with the context
    question_only: Said | None = None  # without any document
    ranked: tuple[int, ...] = ()  # as Shown has it
    pages: tuple[int, ...] = ()  # that the context shows, in reading order
    evidence: tuple[Evidence, ...] = ()  # of the context's chunks; () where it was not looked for
