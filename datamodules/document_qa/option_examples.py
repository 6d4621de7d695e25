"""Questions to learn from by comparing their options: each option once as the answer."""

from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.document_qa.batch import OptionExamples
from datamodules.document_qa.document_chats import DocumentChats, no_answer
from datamodules.multimodal.batch import Chat
from datamodules.multimodal.chat import ChatEncoder
from datamodules.multimodal.chat_sets import TooLong, drawn, encoded
from datamodules.multimodal.images import Views
from datamodules.multimodal.packing import one_per_row, pack
from datamodules.multimodal.unusable import UnusableSample
from engine.bad_samples import LeftOut, usable
from engine.sampling import Draw


class Option(NamedTuple):
    """A chat in which an option is the answer."""

    chat: Chat
    views: Views
    right: bool


class OptionSets(Dataset[tuple[OptionExamples]]):
    """Micro-batches of whole questions, each with a chat for each of its options; of an open one with its answer alone.

    Args:
        source: the samples; each question of one is a question of the batch.
        encoder: makes them chats.
        row_tokens: tokens of a row that chats are packed into; None for one chat a row.
        max_length: tokens of the longest chat; None for any.
        too_long: see ChatExamples; a sample is left out whole.
        leave_out: leave samples out that cannot be used, too; otherwise they are errors.
    """

    def __init__(
        self,
        source: DocumentChats,
        encoder: ChatEncoder,
        row_tokens: int | None = None,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        leave_out: bool = False,
    ) -> None:
        self.source, self.encoder, self.row_tokens = source, encoder, row_tokens
        self.max_length, self.too_long, self.leave_out = max_length, too_long, leave_out

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, draw: Draw) -> tuple[OptionExamples]:
        made, indices, left_out = usable(drawn(draw), lambda index: self._made(draw.epoch, index), self.leave_out)
        options = [option for sample in made for question in sample for option in question]
        samples = np.repeat(indices, [sum(map(len, sample)) for sample in made])
        questions = [question for sample in made for question in sample]
        numbers = np.repeat(np.arange(len(questions)), [len(question) for question in questions])
        chats, pad = [option.chat for option in options], self.encoder.tokenizer.pad
        if self.row_tokens is None:
            rows, order = one_per_row(chats, samples, pad), np.arange(len(chats))
        else:
            rows, order = pack(chats, samples, self.row_tokens, pad)
        ordered = [options[place] for place in order]
        return (
            OptionExamples(
                rows,
                self.source.collate([option.views for option in ordered]),
                torch.from_numpy(numbers[order].astype(np.int64)),
                torch.tensor([option.right for option in ordered], dtype=torch.bool),
                left_out,
            ),
        )

    def _made(self, epoch: int, index: int) -> list[list[Option]] | LeftOut:
        """Of each question of a sample its chats."""
        source, name = self.source, self.source.name(index, epoch)
        reading, prompter = source.readings.reading(epoch, index), source.readings.prompter
        context = source.readings.context(reading)
        made = []
        for question in reading.questions:
            answer = prompter.answers(question)
            if answer is None:
                raise UnusableSample(no_answer(question))
            places = range(len(question.options))
            said = [(place == question.right, prompter.says(question, place)) for place in places] or [(True, answer)]
            options = []
            for right, text in said:
                item = source.chat(context, [(prompter.asks(question), text)])
                options.append(Option(encoded(self.encoder.chat, item, name), item.modality, right))
            made.append(options)
        longest = max((len(option.chat.tokens) for options in made for option in options), default=0)
        if self.max_length is None or longest <= self.max_length:
            return made
        what = f"sample {name}: {longest} tokens, but max_length is {self.max_length}"
        if self.too_long == "drop":
            return LeftOut("too_long", what, index)
        raise ValueError(f"{what}; raise it, or leave such samples out: data.init_args.too_long drop")
