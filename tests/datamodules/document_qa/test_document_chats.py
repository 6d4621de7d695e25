"""Questions about documents as they are trained on: answers to learn, or options to compare."""

from typing import Any

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import OptionExamples
from datamodules.document_qa.document_chats import DocumentChats
from datamodules.document_qa.option_examples import OptionSets
from datamodules.document_qa.question import Question
from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.chat import ChatEncoder
from datamodules.multimodal.chat_sets import ChatExamples
from datamodules.multimodal.unusable import UnusableSample
from engine.sampling import FILLER, Draw
from tests.datamodules.document_qa.test_asked_documents import readings, text_of, tokenizer
from tests.tiny_documents import TinyQuestions


class Unknown(TinyQuestions):
    """Nobody knows the answer to sample 1, nor which option of sample 2 is right."""

    def questions(self, epoch: int, index: int) -> list[Question]:
        (question,) = super().questions(epoch, index)
        return [question._replace(answer=None, right=None) if index in (1, 2) else question]


def encoder() -> ChatEncoder:
    return ChatEncoder(tokenizer(), "<image>")


def learnt(labels: torch.Tensor) -> list[str]:
    return [turn for turn in text_of(labels[labels != IGNORE]).split("<|im_end|>") if turn]


@pytest.mark.parametrize("together", [1, 3])
def test_a_chat_has_its_context_once_and_learns_each_answer(together: int) -> None:
    questions = TinyQuestions(0, 8, together)
    (batch,) = ChatExamples(DocumentChats(readings(questions=questions)), encoder())[Draw(0, np.arange(8))]
    for row, sample in enumerate(batch.rows.samples.tolist()):
        asked = questions.questions(0, sample)
        assert learnt(batch.rows.labels[row]) == [question.answer for question in asked]
        text = text_of(batch.rows.tokens[row])
        assert [text.count(f"Page {page}\n") for page in (1, 2, 3)] == [1, 1, 1]
        assert text.count("<|im_start|>user") == together
        places = [text.index(question.question, text.index(asked[0].question)) for question in asked]
        assert places == sorted(places) and places[0] > text.index("Page 3")
    assert batch.modality.views.tolist() == [1] * 8 and batch.rows.counts.features == 8 * 4


@pytest.mark.parametrize("sample", [1, 2])
@pytest.mark.parametrize("kind", [ChatExamples, OptionSets])
def test_a_question_without_an_answer_cannot_be_trained_on(kind: Any, sample: int) -> None:
    source = DocumentChats(readings(questions=Unknown(0, 4)))
    with pytest.raises(UnusableSample, match=rf"question 0-{sample}-{sample}: cannot be trained on: "):
        kind(source, encoder())[Draw(0, np.array([sample]))]
    (batch,) = kind(source, encoder(), leave_out=True)[Draw(0, np.arange(4))]
    assert sorted(one.sample for one in batch.left_out) == [1, 2]
    assert set(batch.rows.samples.tolist()) == {0, 3}


@pytest.mark.parametrize("row_tokens", [None, 400])
@pytest.mark.parametrize("together", [1, 2])
def test_each_option_is_the_answer_of_a_chat_of_its_own(row_tokens: int | None, together: int) -> None:
    questions = TinyQuestions(0, 4, together)
    source = DocumentChats(readings(questions=questions))
    (batch,) = OptionSets(source, encoder(), row_tokens)[Draw(0, np.arange(4))]
    assert isinstance(batch, OptionExamples)
    said: dict[int, list[tuple[str, bool]]] = {}
    answers = [answer for row in batch.rows.labels for answer in learnt(row)]
    for answer, number, right in zip(answers, batch.questions.tolist(), batch.right.tolist(), strict=True):
        said.setdefault(number, []).append((answer, right))
    asked = [question for sample in range(4) for question in questions.questions(0, sample)]
    assert sorted(said) == list(range(len(asked)))
    for number, question in enumerate(asked):
        options = question.options or (str(question.answer),)
        assert sorted(said[number]) == sorted((option, option == question.answer) for option in options)
        samples = batch.rows.samples[batch.questions == number].tolist()
        assert samples == [number // together] * len(options)
    assert batch.modality.views.tolist() == [1] * len(answers)
    assert (len(batch.rows.tokens) < len(answers)) == (row_tokens is not None)


def test_a_filler_is_a_batch_that_weighs_nothing() -> None:
    (batch,) = OptionSets(DocumentChats(readings()), encoder())[Draw(0, np.array([FILLER]))]
    assert (batch.rows.labels == IGNORE).all() and len(batch.questions) == len(batch.right) == 0
    assert batch.modality.pixels.shape == (0, 3, 16, 16)


def test_a_longer_sample_is_an_error_or_left_out_whole() -> None:
    source = DocumentChats(readings(questions=TinyQuestions(0, 4)))
    with pytest.raises(ValueError, match="sample 0 .*: [0-9]+ tokens, but max_length is 100; raise it"):
        OptionSets(source, encoder(), max_length=100)[Draw(0, np.array([0]))]
    (batch,) = OptionSets(source, encoder(), max_length=100, too_long="drop")[Draw(0, np.arange(4))]
    reasons = {one.sample: one.reason for one in batch.left_out}
    assert reasons and set(reasons.values()) == {"too_long"}
    assert set(batch.rows.samples.tolist()) == set(range(4)) - set(reasons)
