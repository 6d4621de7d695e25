"""Encodes questions and pages as inputs of a dense retriever."""

from typing import NamedTuple

from datamodules.document_qa.prompt.context import ContextBuilder, sample_views
from datamodules.document_qa.prompt.prompt import question_label
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, QuestionSet
from datamodules.document_qa.views.ablation import Ablation, apply_ablation
from datamodules.multimodal.batch import Chat
from datamodules.multimodal.chat_dataset import ChatItem, encode_sample
from datamodules.multimodal.images.tiling import Views, empty_views
from datamodules.multimodal.text.chat_encoder import ChatEncoder


class EncoderInput(NamedTuple):
    """A question or a page, encoded."""

    chat: Chat  # up to the assistant's turn
    views: Views


class EncoderInputBuilder:
    """Encodes questions and pages. A page has the same format as in a DocumentReader's context.

    Args:
        builder: builds contexts.
        encoder: encodes chats.
        ablate: content to remove from documents.
    """

    def __init__(self, builder: ContextBuilder, encoder: ChatEncoder, ablate: Ablation = "none") -> None:
        self.context_builder, self.encoder, self.ablate = builder, encoder, ablate

    @property
    def pad(self) -> int:
        """Id of the padding token."""
        return self.encoder.tokenizer.pad

    def document(self, questions: QuestionSet, epoch: int, index: int) -> Document:
        """Return the document of a sample, after ablation.

        Raises:
            BadSampleError: the sample cannot be used.
        """
        document = questions.document(epoch, index)
        return apply_ablation(document, self.ablate, lambda: questions.another_document(epoch, index))

    def question(self, question: Question) -> EncoderInput:
        """Encode a question with its options, whose words may occur on the page.

        Raises:
            BadSampleError: the question cannot be encoded.
        """
        text = self.context_builder.prompter.question_text(question)
        return self._encode(text, empty_views(self.context_builder.layout), (), question_label(question))

    def page(self, document: Document, number: int) -> EncoderInput:
        """Encode a page.

        Raises:
            BadSampleError: the page cannot be encoded.
        """
        context = self.context_builder.context(document, [number])
        views = sample_views(context, self.context_builder.layout)
        name = f"page {number} of {document.name}"
        return self._encode(context.text, views, self.context_builder.features(context.views), name)

    def _encode(self, text: str, views: Views, counts: tuple[int, ...], name: str) -> EncoderInput:
        messages = self.context_builder.prompter.messages("", [(text, None)])
        return EncoderInput(encode_sample(self.encoder.prompt, ChatItem(messages, counts, views), name), views)
