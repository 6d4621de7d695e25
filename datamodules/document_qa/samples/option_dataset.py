"""Provides questions for contrastive training: each option once as the answer."""

from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from datamodules.document_qa.batch import OptionTrainBatch
from datamodules.document_qa.samples.train_chats import DocumentChats, missing_answer_message
from datamodules.multimodal.batch import Chat
from datamodules.multimodal.chat_dataset import TooLong, encode_sample, sample_indices
from datamodules.multimodal.images.tiling import Views
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.packing import one_per_row, pack
from engine.data.errors import BadSampleError
from engine.data.sample_loading import SkippedSample, load_samples
from engine.data.samplers import MicroBatchRequest


class Option(NamedTuple):
    """A chat with an option as the answer."""

    chat: Chat
    views: Views
    right: bool


class OptionDataset(Dataset[tuple[OptionTrainBatch]]):
    """Micro-batches of whole questions: one chat per option, or one chat for an open question.

    Args:
        source: the samples; each of their questions becomes a question of the batch.
        encoder: encodes chats.
        packed_length: tokens per row that chats are packed into; None for one chat per row.
        max_length: largest number of tokens of a chat; None for no limit.
        too_long: see ChatExamples; a sample is skipped as a whole.
        skip_bad: also skip bad samples; otherwise they raise.
    """

    def __init__(
        self,
        source: DocumentChats,
        encoder: ChatEncoder,
        packed_length: int | None = None,
        max_length: int | None = None,
        too_long: TooLong = "stop",
        skip_bad: bool = False,
    ) -> None:
        self.source, self.encoder, self.packed_length = source, encoder, packed_length
        self.max_length, self.too_long, self.skip_bad = max_length, too_long, skip_bad

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, request: MicroBatchRequest) -> tuple[OptionTrainBatch]:
        loaded, indices, skipped = load_samples(
            sample_indices(request), lambda index: self._make_options(request.epoch, index), self.skip_bad
        )
        options = [option for sample in loaded for question in sample for option in question]
        samples = np.repeat(indices, [sum(map(len, sample)) for sample in loaded])
        questions = [question for sample in loaded for question in sample]
        numbers = np.repeat(np.arange(len(questions)), [len(question) for question in questions])
        chats, pad = [option.chat for option in options], self.encoder.tokenizer.pad
        if self.packed_length is None:
            rows, order = one_per_row(chats, samples, pad), np.arange(len(chats))
        else:
            rows, order = pack(chats, samples, self.packed_length, pad)
        ordered = [options[row] for row in order]
        return (
            OptionTrainBatch(
                rows,
                self.source.collate([option.views for option in ordered]),
                torch.from_numpy(numbers[order].astype(np.int64)),
                torch.tensor([option.right for option in ordered], dtype=torch.bool),
                skipped,
            ),
        )

    def _make_options(self, epoch: int, index: int) -> list[list[Option]] | SkippedSample:
        """Return the chats of each question of a sample."""
        source, name = self.source, self.source.name(index, epoch)
        sample, prompter = source.sample_builder.build(epoch, index), source.sample_builder.prompter
        context = source.sample_builder.context(sample)
        options_by_question = []
        for question in sample.questions:
            answer = prompter.answer_text(question)
            if answer is None:
                raise BadSampleError(missing_answer_message(question))
            indices = range(len(question.options))
            texts = [(index == question.right, prompter.option_text(question, index)) for index in indices] or [
                (True, answer)
            ]
            options = []
            for right, text in texts:
                item = source.chat(context, [(prompter.question_text(question), text)])
                options.append(Option(encode_sample(self.encoder.chat, item, name), item.encoder_input, right))
            options_by_question.append(options)
        longest = max((len(option.chat.tokens) for options in options_by_question for option in options), default=0)
        if self.max_length is None or longest <= self.max_length:
            return options_by_question
        what = f"sample {name}: {longest} tokens, but max_length is {self.max_length}"
        if self.too_long == "drop":
            return SkippedSample("too_long", what, index)
        raise ValueError(f"{what}; increase it, or skip such samples with data.init_args.too_long drop")
