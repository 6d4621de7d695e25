"""The family's samples to train on, as chats: a context, and a question about it or several."""

from collections.abc import Sequence

from datamodules.document_qa.context import Context, joined_views
from datamodules.document_qa.prompt import where
from datamodules.document_qa.question import Question
from datamodules.document_qa.readings import Readings
from datamodules.multimodal.batch import Images
from datamodules.multimodal.chat_sets import ChatItem
from datamodules.multimodal.images import Views, collate_views
from datamodules.multimodal.unusable import UnusableSample


class DocumentChats:
    """Samples as ChatExamples reads them: their answers are to be learnt."""

    def __init__(self, readings: Readings) -> None:
        self.readings, self.layout = readings, readings.builder.layout

    def __len__(self) -> int:
        return len(self.readings)

    def name(self, index: int, epoch: int = 0) -> str:
        return self.readings.name(index, epoch)

    def item(self, epoch: int, index: int) -> ChatItem:
        reading, prompter = self.readings.reading(epoch, index), self.readings.prompter
        turns = []
        for question in reading.questions:
            answer = prompter.answers(question)
            if answer is None:
                raise UnusableSample(no_answer(question))
            turns.append((prompter.asks(question), answer))
        return self.chat(self.readings.context(reading), turns)

    def chat(self, context: Context, turns: Sequence[tuple[str, str | None]]) -> ChatItem:
        """A chat about a context."""
        messages = self.readings.prompter.messages(context.text, turns)
        return ChatItem(messages, self.readings.builder.features(context.views), joined_views(context, self.layout))

    def collate(self, items: Sequence[Views]) -> Images:
        return collate_views(items, self.layout)


def no_answer(question: Question) -> str:
    """What is wrong with a question that cannot be learnt from."""
    missing = "none of its options is said to be right" if question.options else "it has no answer"
    return f"{where(question)}: cannot be trained on: {missing}"
