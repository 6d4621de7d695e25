"""Tests prompts of an evaluation."""

import logging
import pickle
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.document_qa.batch import FIRST_CHUNK, QUESTION_ONLY, WHOLE, EvaluationBatch
from datamodules.document_qa.samples.evaluation_dataset import DocumentEvaluationDataset
from datamodules.document_qa.samples.sample_builder import SampleBuilder, interleave
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from tests.support.document_qa.sample_builders import sample_builder, text_of, tokenizer
from tests.support.families.tiny_documents import TinyDocument, TinyQuestions

"""A template without generation marks, as Qwen2.5's."""


def asked(source: SampleBuilder, published: bool = False, **settings: Any) -> DocumentEvaluationDataset:
    return DocumentEvaluationDataset(source, ChatEncoder(tokenizer(published), "<image>"), **settings)


def prompt_of(batch: EvaluationBatch, row: int) -> torch.Tensor:
    return batch.prompts.tokens[row][batch.prompts.mask[row]]


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


# -- what is read ----------------------------------------------------------------------------------------------------


def test_a_document_without_anything_is_the_question_alone() -> None:
    batch = asked(sample_builder(ablate="question_only"))[MicroBatchRequest(0, np.array([0]))]
    with_pages, alone = (
        prompt_of(batch, int(torch.where(batch.variants == kind)[0])) for kind in (WHOLE, QUESTION_ONLY)
    )
    assert torch.equal(with_pages, alone)


@pytest.mark.parametrize("ablate", ["figure", "table", "text", "shuffled_figure"])
def test_an_ablation_shows_the_same_pages(ablate: Any) -> None:
    plain, without = (sample_builder(ablate=kind, kind="bm25", pages=2, tokens=60) for kind in ("none", ablate))
    for sample in range(8):
        reading, other = plain.build(0, sample), without.build(0, sample)
        assert other.choice.pages == reading.choice.pages
        assert other.ranked == reading.ranked
        context, rest = plain.context(reading), without.context(other)
        if ablate == "shuffled_figure":
            assert rest.text == context.text
        else:
            assert rest.chunks == tuple(chunk for chunk in context.chunks if chunk.kind != ablate)


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


def test_evidence_is_shown_in_training_whatever_the_retriever_ranks() -> None:
    for sample in (0, 1, 2):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        built = sample_builder(kind="bm25", pages=1, evidence_first=True).build(0, sample)
        assert set(question.evidence_pages) <= set(built.choice.pages)


@pytest.mark.parametrize("pages", [1, 2])
def test_evidence_adds_no_page(pages: int) -> None:
    for sample in range(8):
        (question,) = TinyQuestions(1, 8).questions(0, sample)
        ranked = sample_builder(kind="bm25", pages=pages, evidence_first=True).build(0, sample).ranked
        assert len(ranked) == pages
        assert ranked[: len(question.evidence_pages)] == question.evidence_pages


def test_several_questions_share_the_pages_of_all() -> None:
    assert interleave([[3, 1], [2, 3, 4], []]) == (3, 2, 1, 4)


def test_a_budget_that_holds_no_page_is_an_error_or_no_document() -> None:
    with pytest.raises(BadSampleError, match=r"1-0-0: device-1000: none of 3 pages fits .*tokens 5.*shortest has \d+"):
        sample_builder(tokens=5).build(0, 0)
    source = sample_builder(tokens=5, empty="ask")
    assert source.context(source.build(0, 0)).text == ""


def test_a_retriever_that_finds_nothing_is_named() -> None:
    source = sample_builder()
    source.retriever.rank = lambda document, question: []  # type: ignore[method-assign]
    with pytest.raises(BadSampleError, match="has 3 pages, and the retriever ranks none of them"):
        source.build(0, 0)


def test_omitted_pages_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    source = sample_builder(tokens=45)
    with caplog.at_level(logging.INFO, "lockstep"):
        for sample in range(4):
            source.context(source.build(0, sample))
    (output,) = [record.getMessage() for record in caplog.records]
    assert "data.init_args.context drops 2 of 3 ranked pages" in output


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


def test_labels_are_never_scored_beyond_the_answer() -> None:
    batch = asked(sample_builder())[MicroBatchRequest(0, np.arange(4))]
    ends = batch.continuations.tokens[torch.arange(len(batch.continuations.lengths)), batch.continuations.lengths - 1]
    assert (ends == tokenizer().end_of_turn).all()
    assert IGNORE not in batch.continuations.tokens
