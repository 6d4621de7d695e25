"""Tests training chats about documents: answers to learn, or options to compare."""

from typing import Any

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import OptionTrainBatch
from datamodules.document_qa.samples.option_dataset import OptionDataset
from datamodules.document_qa.samples.train_chats import DocumentChats
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.chat_dataset import ChatExamples
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.support.document_qa.sample_builders import sample_builder, text_of, tokenizer
from tests.support.families.tiny_documents import TinyQuestions


class Unknown(TinyQuestions):
    """Nobody knows the answer to sample 1, nor which option of sample 2 is right."""

    def questions(self, epoch: int, index: int) -> list[Question]:
        (question,) = super().questions(epoch, index)
        return [question._replace(answer=None, right=None) if index in (1, 2) else question]


def encoder() -> ChatEncoder:
    return ChatEncoder(tokenizer(), "<image>")


def learned(labels: torch.Tensor) -> list[str]:
    return [turn for turn in text_of(labels[labels != IGNORE]).split("<|im_end|>") if turn]


@pytest.mark.parametrize("together", [1, 3])
def test_a_chat_has_its_context_once_and_learns_each_answer(together: int) -> None:
    questions = TinyQuestions(0, 8, together)
    (batch,) = ChatExamples(DocumentChats(sample_builder(questions=questions)), encoder())[
        MicroBatchRequest(0, np.arange(8))
    ]
    for row, sample in enumerate(batch.rows.samples.tolist()):
        asked_questions = questions.questions(0, sample)
        assert learned(batch.rows.labels[row]) == [question.answer for question in asked_questions]
        text = text_of(batch.rows.tokens[row])
        assert [text.count(f"Page {page}\n") for page in (1, 2, 3)] == [1, 1, 1]
        assert text.count("<|im_start|>user") == together
        positions = [
            text.index(question.question, text.index(asked_questions[0].question)) for question in asked_questions
        ]
        assert positions == sorted(positions)
        assert positions[0] > text.index("Page 3")
    assert batch.encoder_input.views.tolist() == [1] * 8
    assert batch.rows.counts.features == 8 * 4


@pytest.mark.parametrize("sample", [1, 2])
@pytest.mark.parametrize("kind", [ChatExamples, OptionDataset])
def test_a_question_without_an_answer_cannot_be_trained_on(kind: Any, sample: int) -> None:
    source = DocumentChats(sample_builder(questions=Unknown(0, 4)))
    with pytest.raises(BadSampleError, match=rf"question 0-{sample}-{sample}: cannot be used for training: "):
        kind(source, encoder())[MicroBatchRequest(0, np.array([sample]))]
    (batch,) = kind(source, encoder(), skip_bad=True)[MicroBatchRequest(0, np.arange(4))]
    assert sorted(skip.sample for skip in batch.skipped) == [1, 2]
    assert set(batch.rows.samples.tolist()) == {0, 3}


@pytest.mark.parametrize("packed_length", [None, 400])
@pytest.mark.parametrize("together", [1, 2])
def test_each_option_is_the_answer_of_a_chat_of_its_own(packed_length: int | None, together: int) -> None:
    questions = TinyQuestions(0, 4, together)
    source = DocumentChats(sample_builder(questions=questions))
    (batch,) = OptionDataset(source, encoder(), packed_length)[MicroBatchRequest(0, np.arange(4))]
    assert isinstance(batch, OptionTrainBatch)
    output: dict[int, list[tuple[str, bool]]] = {}
    answers = [answer for row in batch.rows.labels for answer in learned(row)]
    for answer, number, right in zip(answers, batch.questions.tolist(), batch.right.tolist(), strict=True):
        output.setdefault(number, []).append((answer, right))
    asked_questions = [question for sample in range(4) for question in questions.questions(0, sample)]
    assert sorted(output) == list(range(len(asked_questions)))
    for number, question in enumerate(asked_questions):
        options = question.options or (str(question.answer),)
        assert sorted(output[number]) == sorted((option, option == question.answer) for option in options)
        samples = batch.rows.samples[batch.questions == number].tolist()
        assert samples == [number // together] * len(options)
    assert batch.encoder_input.views.tolist() == [1] * len(answers)
    assert (len(batch.rows.tokens) < len(answers)) == (packed_length is not None)


def test_a_filler_is_a_batch_that_weighs_nothing() -> None:
    (batch,) = OptionDataset(DocumentChats(sample_builder()), encoder())[
        MicroBatchRequest(0, np.array([PADDING_INDEX]))
    ]
    assert (batch.rows.labels == IGNORE).all()
    assert len(batch.questions) == len(batch.right) == 0
    assert batch.encoder_input.pixels.shape == (0, 3, 16, 16)


def test_a_longer_sample_is_an_error_or_skipped_completely() -> None:
    source = DocumentChats(sample_builder(questions=TinyQuestions(0, 4)))
    with pytest.raises(ValueError, match="sample 0 .*: [0-9]+ tokens, but max_length is 100; increase it"):
        OptionDataset(source, encoder(), max_length=100)[MicroBatchRequest(0, np.array([0]))]
    (batch,) = OptionDataset(source, encoder(), max_length=100, too_long="drop")[MicroBatchRequest(0, np.arange(4))]
    reasons = {skip.sample: skip.reason for skip in batch.skipped}
    assert reasons
    assert set(reasons.values()) == {"too_long"}
    assert set(batch.rows.samples.tolist()) == set(range(4)) - set(reasons)
