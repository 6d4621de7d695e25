"""Provides training samples as chats: a context with one or more questions and answers."""

from collections.abc import Sequence

from typing_extensions import override

from datamodules.document_qa.prompt.context import Context, sample_views
from datamodules.document_qa.prompt.prompt import question_label
from datamodules.document_qa.samples.sample_builder import SampleBuilder
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.batch import Images
from datamodules.multimodal.chat_dataset import ChatItem, ChatSource
from datamodules.multimodal.images.tiling import Views, collate_views
from engine.data.errors import BadSampleError


class DocumentChats(ChatSource):
    """The training samples, as ChatExamples reads them."""

    def __init__(self, sample_builder: SampleBuilder) -> None:
        self.sample_builder, self.layout = sample_builder, sample_builder.context_builder.layout

    @override
    def __len__(self) -> int:
        return len(self.sample_builder)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return self.sample_builder.name(index, epoch)

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        sample, prompter = self.sample_builder.build(epoch, index), self.sample_builder.prompter
        turns = []
        for question in sample.questions:
            answer = prompter.answer_text(question)
            if answer is None:
                raise BadSampleError(missing_answer_message(question))
            turns.append((prompter.question_text(question), answer))
        return self.chat(self.sample_builder.context(sample), turns)

    def chat(self, context: Context, turns: Sequence[tuple[str, str | None]]) -> ChatItem:
        """Return a chat about a context."""
        messages = self.sample_builder.prompter.messages(context.text, turns)
        return ChatItem(
            messages, self.sample_builder.context_builder.features(context.views), sample_views(context, self.layout)
        )

    @override
    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.layout)


def missing_answer_message(question: Question) -> str:
    """Return the error message for a question without a right answer."""
    missing = "no option is marked as right" if question.options else "it has no answer"
    return f"{question_label(question)}: cannot be used for training: {missing}"
