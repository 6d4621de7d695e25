"""Batches of the document-QA family. To learn answers: `Examples` of Images, see multimodal.batch; the rest is here."""

from typing import NamedTuple

from torch import Tensor

from datamodules.multimodal.batch import Images, LeftOut, Prompts, Rows

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


class Asked(NamedTuple):
    """B questions, each as one prompt or several. `prompts.samples` says whose each prompt is."""

    prompts: Prompts  # P of them; no filler
    variants: Tensor  # [P] int64, QUESTION_ONLY, WHOLE, another order of the options, or a chunk left out
    images: Images  # of the P prompts, in their order
    continuations: Continuations  # what is scored: all options, right answers that are known
    left_out: tuple[LeftOut, ...] = ()


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
    """B questions, each with the page that answers it; the other questions' pages are the wrong ones."""

    questions: Rows  # one chat a row, nothing supervised, none has features
    pages: Rows  # one chat a row, nothing supervised: the right page of each question, then H hard negatives of each
    images: Images  # of the pages, in their order
    left_out: tuple[LeftOut, ...] = ()


class RankedPages(NamedTuple):
    """B questions with all pages of each one's document, to be put in order."""

    questions: Rows  # one chat a row
    pages: Rows  # G pages of all of them
    images: Images  # of the pages
    documents: Tensor  # [G] int64, row of `questions` that each page is for
    numbers: Tensor  # [G] int64, each page's number in its document, from 1
    left_out: tuple[LeftOut, ...] = ()
