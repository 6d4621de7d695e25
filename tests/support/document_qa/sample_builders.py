"""Builds chats about tiny documents with the smallest tokenizer."""

from functools import cache
from typing import Any

import torch

from datamodules.document_qa.batch import EvaluationBatch
from datamodules.document_qa.prompt.context import ContextBuilder, ContextSettings
from datamodules.document_qa.prompt.prompt import AnswerWith, PromptBuilder
from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.settings import Kind, RetrieverSettings
from datamodules.document_qa.samples.evaluation_dataset import DocumentEvaluationDataset
from datamodules.document_qa.samples.sample_builder import SampleBuilder
from datamodules.document_qa.views.ablation import Ablation
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from tests.support.families.tiny_documents import LAYOUT, TinyQuestions, tiny_tokenizer

QWEN = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A template without generation marks, as that of Qwen2.5."""


@cache
def tokenizer(published: bool = False) -> ChatTokenizer:
    """Return the tokenizer; `published` has a template without generation marks."""
    made = tiny_tokenizer()
    if not published:
        return made
    made.tokenizer.chat_template = QWEN
    return ChatTokenizer(made.tokenizer, "published")


def sample_builder(
    size: int = 8,
    kind: Kind = "all_pages",
    answer_with: AnswerWith = "text",
    ablate: Ablation = "none",
    published: bool = False,
    questions: Any = None,
    evidence_first: bool = False,
    pages: int | None = 4,
    **context: Any,
) -> SampleBuilder:
    """Return a builder of samples about tiny documents; `context` are settings of its context."""
    prompter = PromptBuilder(tokenizer(published).control, answer_with)
    builder = ContextBuilder(ContextSettings(**context), tokenizer(published), prompter, LAYOUT, "stretch")
    retriever = build_retriever(RetrieverSettings(kind, pages))
    samples = questions or TinyQuestions(1, size)
    return SampleBuilder(samples, retriever, builder, prompter, ablate, evidence_first=evidence_first)


def text_of(tokens: torch.Tensor, published: bool = False) -> str:
    """Return the text of tokens."""
    text: str = tokenizer(published).tokenizer.decode(tokens)
    return text


def asked(source: SampleBuilder, published: bool = False, **settings: Any) -> DocumentEvaluationDataset:
    """Return the prompts of an evaluation, with these settings."""
    return DocumentEvaluationDataset(source, ChatEncoder(tokenizer(published), "<image>"), **settings)


def prompt_of(batch: EvaluationBatch, row: int) -> torch.Tensor:
    """Return the tokens of a prompt, without padding."""
    return batch.prompts.tokens[row][batch.prompts.mask[row]]
