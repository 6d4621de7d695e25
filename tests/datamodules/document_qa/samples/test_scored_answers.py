"""An evaluation scores the options and the open answer of a question as continuations of its prompt."""

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import WHOLE
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from tests.support.document_qa.sample_builders import asked, prompt_of, sample_builder, text_of, tokenizer
from tests.support.families.tiny_documents import TinyQuestions


class Referring(TinyQuestions):
    """The last option is about the others."""

    def _question(self, index: int, turn: int) -> Question:
        question = super()._question(index, turn)
        options = (*question.options[:-1], "none of the above")
        return question._replace(options=options) if question.options else question


def test_options_that_refer_to_others_are_asked_in_one_order() -> None:
    batch = asked(sample_builder(questions=Referring(1, 8)), option_orders=4, question_only=False)[
        MicroBatchRequest(0, np.arange(8))
    ]
    assert batch.prompts.samples.tolist() == list(dict.fromkeys(batch.prompts.samples.tolist()))
    assert (batch.variants == WHOLE).all()
    assert len(batch.variants) == 8


class Attacked(TinyQuestions):
    """The open answer of sample 1 holds a special token."""

    def _question(self, index: int, turn: int) -> Question:
        question = super()._question(index, turn)
        return question._replace(answer="<|im_end|> 5", where="q.jsonl, line 2") if index == 1 else question


def test_an_answer_that_cannot_be_encoded_is_the_error_of_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    source = sample_builder(questions=Attacked(1, 4))
    batch = asked(source, question_only=False)[MicroBatchRequest(0, np.arange(4))]
    (output,) = [
        text_of(tokens[:length])
        for tokens, length, prompt, _ in zip(*batch.continuations, strict=True)
        if batch.prompts.samples[prompt] == 1
    ]
    assert output == "< |im_end|> 5<|im_end|>"
    monkeypatch.setattr(source.prompter, "escape", lambda text: text)
    with pytest.raises(BadSampleError, match=r"question 1-1-1 \(q.jsonl, line 2\): .*special token"):
        asked(source)[MicroBatchRequest(0, np.arange(4))]
    left = asked(source, skip_bad=True)[MicroBatchRequest(0, np.arange(4))]
    assert [skip.sample for skip in left.skipped] == [1]
    assert sorted(context.sample for context in left.contexts) == [
        0,
        2,
        3,
    ]


def test_letters_are_those_beside_which_the_options_stand() -> None:
    batch = asked(sample_builder(answer_with="letter"), option_orders=4, question_only=False)[
        MicroBatchRequest(0, np.array([0, 2]))
    ]
    letters: dict[tuple[int, int], str] = {}
    for tokens, length, prompt, option in zip(*batch.continuations, strict=True):
        letters[int(prompt), int(option)] = text_of(tokens[:length]).removesuffix("<|im_end|>")
    assert len(letters) == 2 * 4 * 4
    for row, (sample, variant) in enumerate(zip(batch.prompts.samples.tolist(), batch.variants.tolist(), strict=True)):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        assert variant in range(4)
        for index, option in enumerate(question.options):
            assert f"\n{letters[row, index]}. {option}" in text_of(prompt_of(batch, row))


@pytest.mark.parametrize("published", [False, True])
def test_a_scored_option_continues_the_chat_as_the_answer_does(published: bool) -> None:
    source = sample_builder(published=published)
    batch = asked(source, published, option_orders=3)[MicroBatchRequest(0, np.arange(8))]
    encoder = ChatEncoder(tokenizer(published), "<image>")
    checked = 0
    for tokens, length, prompt, option in zip(*batch.continuations, strict=True):
        sample, variant = int(batch.prompts.samples[prompt]), int(batch.variants[prompt])
        if variant != WHOLE:
            continue
        (question,) = source.questions.questions(0, sample)
        reading = source.build(0, sample)
        output = question.options[option] if option >= 0 else question.answer
        messages = source.prompter.messages(
            source.context(reading).text, [(source.prompter.question_text(question), str(output))]
        )
        chat = encoder.chat([Message(**message) for message in messages], [4], sample)
        until = 1 + int(np.flatnonzero(chat.supervised)[-1])
        assert torch.cat([prompt_of(batch, int(prompt)), tokens[:length]]).tolist() == chat.tokens[:until].tolist()
        assert chat.supervised.sum() == length
        checked += 1
    assert checked == 4 * 4 + 4


def test_labels_are_never_scored_beyond_the_answer() -> None:
    batch = asked(sample_builder())[MicroBatchRequest(0, np.arange(4))]
    ends = batch.continuations.tokens[torch.arange(len(batch.continuations.lengths)), batch.continuations.lengths - 1]
    assert (ends == tokenizer().end_of_turn).all()
    assert IGNORE not in batch.continuations.tokens
