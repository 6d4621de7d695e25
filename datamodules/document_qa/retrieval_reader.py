"""Questions and pages as a dense retriever reads them."""

from typing import NamedTuple

from datamodules.document_qa.ablation import Ablation, ablated
from datamodules.document_qa.context import ContextBuilder, joined_views
from datamodules.document_qa.document import Document
from datamodules.document_qa.prompt import where
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.multimodal.batch import Chat
from datamodules.multimodal.chat import ChatEncoder
from datamodules.multimodal.chat_sets import ChatItem, encoded
from datamodules.multimodal.images import Views, no_views


class Read(NamedTuple):
    """A question or a page, as tower and language model are to read it."""

    chat: Chat  # up to where the assistant is to speak
    views: Views


class RetrievalReader:
    """Makes chats of questions and pages. A page looks as it does in a reader's context.

    Args:
        builder: of contexts.
        encoder: of chats.
        ablate: what documents are shown without.
    """

    def __init__(self, builder: ContextBuilder, encoder: ChatEncoder, ablate: Ablation = "none") -> None:
        self.builder, self.encoder, self.ablate = builder, encoder, ablate

    @property
    def pad(self) -> int:
        """The padding token."""
        return self.encoder.tokenizer.pad

    def document(self, questions: QuestionSet, epoch: int, index: int) -> Document:
        """What a sample asks about, as it is shown.

        Raises:
            UnusableSample: it cannot be used.
        """
        document = questions.document(epoch, index)
        return ablated(document, self.ablate, lambda: questions.another_document(epoch, index))

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
