"""The prompts of an evaluation: their order, their pages, and the variants that a question is asked in."""

import logging
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import FIRST_CHUNK, QUESTION_ONLY, WHOLE
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.support.document_qa.sample_builders import asked, prompt_of, sample_builder, text_of, tokenizer
from tests.support.families.tiny_documents import TinyDocument, TinyQuestions


def test_a_batch_equals_what_is_made_by_hand() -> None:
    batch = asked(sample_builder(), option_orders=2)[MicroBatchRequest(0, np.arange(8))]
    # Kinds in turn: choice, open, choice, open; of a choice two orders.
    samples, variants = batch.prompts.samples.tolist(), batch.variants.tolist()
    by_sample = {sample: [v for s, v in zip(samples, variants, strict=True) if s == sample] for sample in samples}
    assert by_sample == {
        sample: [WHOLE, QUESTION_ONLY] if sample % 2 else [WHOLE, 1, QUESTION_ONLY] for sample in range(8)
    }
    counts = {sample: batch.prompts.placeholders[samples.index(sample)].item() for sample in range(8)}
    assert counts == dict.fromkeys(range(8), 4)
    for row, (sample, variant) in enumerate(zip(samples, variants, strict=True)):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        text = text_of(prompt_of(batch, row)).replace("<|modality|>" * 4, "<image>")
        order = question.options[1:] + question.options[:1] if variant == 1 else question.options
        lines = [question.question, *(f"{letter}. {option}" for letter, option in zip("ABCD", order, strict=False))]
        before = "" if variant == QUESTION_ONLY else context_by_hand(TinyDocument(1000 + sample // 4)) + "\n\n"
        output = before + "\n".join(lines)
        assert text == f"<|im_start|>user\n{output}<|im_end|>\n<|im_start|>assistant\n"
        assert batch.images.views[row] == (variant != QUESTION_ONLY)
        continued = [
            (option, text_of(tokens[:length]))
            for tokens, length, prompt, option in zip(*batch.continuations, strict=True)
            if prompt == row
        ]
        answers = list(enumerate(question.options)) or [(-1, question.answer)]
        assert [(int(option), output) for option, output in continued] == [(o, f"{a}<|im_end|>") for o, a in answers]
    assert [context.sample for context in batch.contexts] == list(dict.fromkeys(samples))
    for context in batch.contexts:
        document = TinyDocument(1000 + context.sample // 4)
        assert context.ranked == (1, 2, 3)
        assert context.chunks == tuple(chunk for page in document.pages for chunk in page.chunks)


def context_by_hand(document: TinyDocument) -> str:
    lines = []
    for page in document.pages:
        lines += [f"Page {page.number}", *(chunk.text or "<image>" for chunk in page.chunks)]
    return "\n".join(lines)


def test_each_chunk_is_removed_once_for_the_evidence_test() -> None:
    batch = asked(sample_builder(), evidence=1)[MicroBatchRequest(0, np.arange(8))]
    samples, variants = batch.prompts.samples, batch.variants
    chunks = {context.sample: context.chunks for context in batch.contexts}
    for sample in range(8):
        skipped = variants[(samples == sample) & (variants >= FIRST_CHUNK)].tolist()
        assert skipped == (list(range(FIRST_CHUNK, FIRST_CHUNK + 6)) if sample == 0 else [])
    for row in torch.where(variants >= FIRST_CHUNK)[0].tolist():
        gone = chunks[0][int(variants[row]) - FIRST_CHUNK]
        text = text_of(prompt_of(batch, row))
        assert [chunk for chunk in chunks[0] if chunk.text and chunk.text not in text] == ([gone] if gone.text else [])
        assert batch.images.views[row] == (gone.kind != "figure")
        assert batch.prompts.placeholders[row] == 4 * batch.images.views[row]
        assert (batch.continuations.prompts == row).sum() == 4
    every = asked(sample_builder(), evidence=None, in_order=True)[MicroBatchRequest(0, np.array([1]))]
    # Of an open question what the model has written is looked at, which is not known here.
    assert (every.variants >= FIRST_CHUNK).sum() == 6
    assert every.continuations.prompts.tolist() == [0, 1]


def test_the_shortest_come_first_but_in_a_prediction() -> None:
    source = sample_builder(32, "bm25", pages=1)
    batches = [asked(source)[MicroBatchRequest(0, np.arange(start, start + 8))] for start in range(0, 32, 8)]
    samples = [context.sample for batch in batches for context in batch.contexts]
    assert sorted(samples) == list(range(32))
    assert samples != list(range(32))
    lengths = [source.length(sample)[0] for sample in samples]
    assert lengths == sorted(lengths)
    # The length covers the context in the prompt: the rest is the question and the turns' frame.
    for batch in batches:
        rows = {int(sample): row for row, sample in enumerate(batch.prompts.samples) if batch.variants[row] == WHOLE}
        for context in batch.contexts:
            (question,) = source.questions.questions(0, context.sample)
            alone = source.prompter.messages("", [(source.prompter.question_text(question), None)])
            around = len(ChatEncoder(tokenizer(), "<image>").prompt(alone).tokens) + len(tokenizer().encode("\n\n"))
            assert len(prompt_of(batch, rows[context.sample])) == source.length(context.sample)[0] + around
    ordered = asked(source, in_order=True)[MicroBatchRequest(0, np.arange(32))]
    assert [context.sample for context in ordered.contexts] == list(range(32))


def test_a_limited_evaluation_is_of_the_first_samples() -> None:
    fewer = asked(sample_builder(32), evidence=2).first(5)
    assert len(fewer) == 5
    batch = fewer[MicroBatchRequest(0, np.arange(5))]
    assert sorted(context.sample for context in batch.contexts) == list(range(5))
    assert set(batch.prompts.samples[batch.variants >= FIRST_CHUNK].tolist()) == {0, 1}


def test_a_filler_has_one_prompt_without_a_question() -> None:
    batch = asked(sample_builder())[MicroBatchRequest(0, np.array([PADDING_INDEX]))]
    assert batch.prompts.samples.tolist() == [PADDING_INDEX]
    assert batch.variants.tolist() == [WHOLE]
    assert batch.images.pixels.shape == (0, 3, 16, 16)
    assert batch.images.views.tolist() == [0]
    assert batch.continuations.tokens.shape == (0, 1)
    assert batch.contexts == ()


class Faulty(TinyQuestions):
    """Sample 1 cannot be read."""

    def document(self, epoch: int, index: int) -> TinyDocument:
        if index == 1:
            raise BadSampleError("device.pdf, page 2: corrupt")
        return super().document(epoch, index)


def test_bad_samples_are_skipped_if_configured() -> None:
    source = sample_builder(questions=Faulty(1, 4))
    batch = asked(source, skip_bad=True)[MicroBatchRequest(0, np.arange(4))]
    assert sorted(context.sample for context in batch.contexts) == [0, 2, 3]
    (skipped,) = batch.skipped
    assert skipped.sample == 1
    assert "page 2: corrupt" in skipped.what
    with pytest.raises(BadSampleError, match="corrupt"):
        asked(source)[MicroBatchRequest(0, np.arange(4))]


def test_a_batch_is_the_same_in_another_process() -> None:
    whole = asked(sample_builder(), option_orders=2, evidence=3)
    again = pickle.loads(pickle.dumps(whole))
    for index in (3, 0, 5):
        first, second = (some[MicroBatchRequest(0, np.array([index]))] for some in (whole, again))
        assert torch.equal(first.prompts.tokens, second.prompts.tokens)
        assert torch.equal(first.images.pixels, second.images.pixels)
        assert torch.equal(first.continuations.tokens, second.continuations.tokens)
        assert first.contexts == second.contexts


def test_a_document_without_anything_is_the_question_alone() -> None:
    batch = asked(sample_builder(ablate="question_only"))[MicroBatchRequest(0, np.array([0]))]
    with_pages, alone = (
        prompt_of(batch, int(torch.where(batch.variants == kind)[0])) for kind in (WHOLE, QUESTION_ONLY)
    )
    assert torch.equal(with_pages, alone)


@pytest.mark.parametrize("most, removed", [(None, [0, 1, 2, 3, 4, 5]), (3, [2, 4, 5]), (5, [0, 2, 3, 4, 5])])
def test_no_more_chunks_are_removed_than_fit_the_memory(most: int | None, removed: list[int]) -> None:
    """Those of the retriever's best pages."""

    class LastFirst:
        def rank(self, document: Any, question: Question) -> list[int]:
            return [3, 2, 1]

    source = sample_builder(evidence_chunks=most)
    source.retriever = LastFirst()
    batch = asked(source, evidence=None)[MicroBatchRequest(0, np.array([0]))]
    pages = [chunk.page for chunk in batch.contexts[0].chunks]
    skipped = [variant - FIRST_CHUNK for variant in batch.variants.tolist() if variant >= FIRST_CHUNK]
    assert pages == [1, 1, 2, 2, 3, 3]
    assert skipped == removed


def test_an_evaluation_reports_how_many_pages_its_contexts_lack(caplog: pytest.LogCaptureFixture) -> None:
    source = sample_builder(8, tokens=60)
    whole = asked(source)
    with caplog.at_level(logging.INFO, "lockstep"):
        whole.measure_samples()
        batch = whole[MicroBatchRequest(0, np.arange(8))]
    lacking = [len(set(context.ranked) - {chunk.page for chunk in context.chunks}) for context in batch.contexts]
    assert sum(lacking) > 0
    questions = sum(1 for pages in lacking if pages)
    (output,) = [record.getMessage() for record in caplog.records]
    assert output.endswith(f"{sum(lacking)} pages of {questions} of 8 questions")
