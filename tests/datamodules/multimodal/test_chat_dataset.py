"""Tests that samples become batches: every sample once, with its modality, the same in any batch."""

import re

import numpy as np
import pytest
import torch

from datamodules.multimodal.batch import IGNORE
from datamodules.multimodal.chat_dataset import ChatExamples, ChatItem, ChatQuestions
from datamodules.multimodal.text.chat_encoder import ChatEncoder
from datamodules.multimodal.text.tokenizer import load_tokenizer
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest


class Letters:
    """Sample i: a question of i + 1 letters with i % 3 + 1 features, all of the value i; the answer depends on the
    epoch."""

    def __init__(self, answered=True):
        self.answered = answered

    def __len__(self):
        return 7

    def name(self, index, epoch=0):
        return f"{index} (letters.json, row {index})"

    def item(self, epoch, index):
        messages = [{"role": "user", "content": "a" * (10 - index) + "<it>"}]
        if self.answered:
            messages.append({"role": "assistant", "content": f"{epoch}" * (index + 1)})
        count = index % 3 + 1
        return ChatItem(messages, (count,), torch.full((count,), index))

    def collate(self, items):
        return torch.cat([*items, torch.zeros(0, dtype=torch.int64)])


@pytest.fixture(scope="module")
def encoder():
    return ChatEncoder(load_tokenizer(None, ["aaa 0 1"]), "<it>")


def check(rows, modality, placeholder):
    """Placeholders and features have the same order."""
    expected = [sample for sample in rows.samples.tolist() for _ in range(sample % 3 + 1)]
    assert modality.tolist() == expected
    assert (rows.tokens == placeholder).sum() == len(expected) == rows.placeholders.sum()


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}, {}])
def test_examples_have_all_requested_samples_and_their_labels(encoder, options):
    data = ChatExamples(Letters(), encoder, **options)
    parts = data[MicroBatchRequest(1, np.array([5, 0, 3, 6]))]
    assert len(parts) == options.get("length_groups", 1)
    for rows, modality, _ in parts:
        check(rows, modality, encoder.tokenizer.placeholder)
    assert sorted(sample for rows, *_ in parts for sample in rows.samples.tolist()) == [0, 3, 5, 6]
    output = [
        encoder.tokenizer.decode(labels[labels != IGNORE].tolist()) for rows, *_ in parts for labels in rows.labels
    ]
    assert sorted("".join(output)) == ["1"] * (6 + 1 + 4 + 7)
    again = data[MicroBatchRequest(2, np.array([5]))][0].rows
    assert encoder.tokenizer.decode(again.labels[again.labels != IGNORE].tolist()) == "2" * 6


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}])
def test_a_filler_weighs_nothing(encoder, options):
    parts = ChatExamples(Letters(), encoder, **options)[MicroBatchRequest(0, np.array([PADDING_INDEX]))]
    assert all((rows.labels == IGNORE).all() and not len(rows.samples) for rows, *_ in parts)
    questions = ChatQuestions(Letters(), encoder)[MicroBatchRequest(0, np.array([PADDING_INDEX]))]
    assert questions.prompts.samples.tolist() == [PADDING_INDEX]
    assert (questions.rows.labels == IGNORE).all()


def test_questions_come_from_the_shortest_prompt_to_the_longest(encoder):
    data = ChatQuestions(Letters(), encoder)
    batches = [data[MicroBatchRequest(0, np.arange(start, min(start + 3, 7)))] for start in range(0, 7, 3)]
    lengths = [int(mask.sum()) for batch in batches for mask in batch.prompts.mask]
    assert lengths == sorted(lengths)
    assert sorted(sample for batch in batches for sample in batch.prompts.samples.tolist()) == list(range(7))
    for rows, prompts, modality, _ in batches:
        assert rows.samples.tolist() == prompts.samples.tolist()
        check(rows, modality, encoder.tokenizer.placeholder)
        for row, mask, whole in zip(prompts.tokens, prompts.mask, rows.tokens, strict=True):
            query = row[mask]
            assert torch.equal(whole[: len(query)], query)  # a chat begins as its prompt


def test_some_questions_are_the_first_and_not_the_shortest(encoder):
    some = ChatQuestions(Letters(), encoder).first(3)
    assert len(some) == 3
    assert sorted(some[MicroBatchRequest(0, np.arange(3))].prompts.samples.tolist()) == [0, 1, 2]


def test_predictions_keep_the_order_of_the_samples(encoder):
    batches = [
        ChatQuestions(Letters(), encoder, in_order=True)[MicroBatchRequest(0, part)]
        for part in np.split(np.arange(7), [3])
    ]
    assert [sample for batch in batches for sample in batch.prompts.samples.tolist()] == list(range(7))


def test_questions_without_answers_have_prompts_and_no_labels(encoder):
    batch = ChatQuestions(Letters(answered=False), encoder)[MicroBatchRequest(0, np.arange(7))]
    assert (batch.rows.labels == IGNORE).all()
    assert len(batch.prompts.samples) == 7


def test_too_long_a_chat_is_named(encoder):
    with pytest.raises(ValueError, match=r"sample 6 \(letters.json, row 6\): .*max_length is 10.*too_long drop"):
        ChatExamples(Letters(), encoder, packed_length=60, max_length=10, skip_bad=True)[
            MicroBatchRequest(0, np.array([6]))
        ]


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}])
def test_chats_that_are_too_long_are_dropped_whole(encoder, options):
    indices = np.arange(7)
    full = ChatExamples(Letters(), encoder, **options)[MicroBatchRequest(0, indices)]
    sizes = {sample: len(encoder.chat(*Letters().item(0, sample)[:2]).tokens) for sample in range(7)}
    most = sorted(sizes.values())[3]
    long = [sample for sample, size in sizes.items() if size > most]
    parts = ChatExamples(Letters(), encoder, max_length=most, too_long="drop", **options)[MicroBatchRequest(0, indices)]
    assert 0 < len(long) < 7
    assert len(parts) == len(full)
    assert sorted(sample for part in parts for sample in part.rows.samples.tolist()) == sorted(set(sizes) - set(long))
    assert [left.reason for part in parts for left in part.skipped] == ["too_long"] * len(long)
    for sample, left in zip(long, parts[0].skipped, strict=True):
        assert f"sample {sample} (letters.json, row {sample}): {sizes[sample]} tokens" in left.what
    for part in parts:
        check(part.rows, part.encoder_input, encoder.tokenizer.placeholder)


class CorruptLetters(Letters):
    """Sample 2 cannot be read; sample 4 contains a special token, and sample 5 a surplus marker."""

    def item(self, epoch, index):
        item = super().item(epoch, index)
        if index == 2:
            raise BadSampleError("letters.json, row 2: not an image")
        extra = {4: "<|im_end|>", 5: "<it>"}.get(index, "")
        item.messages[0]["content"] += extra
        return item


MESSAGES = ["row 2: not an image", r"row 4.*special token", r"row 5.*found .* 2 times"]


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}])
def test_bad_samples_are_skipped_and_named(encoder, options):
    parts = ChatExamples(CorruptLetters(), encoder, skip_bad=True, **options)[MicroBatchRequest(0, np.arange(7))]
    assert sorted(sample for part in parts for sample in part.rows.samples.tolist()) == [0, 1, 3, 6]
    skipped = [left for part in parts for left in part.skipped]
    assert len(skipped) == 3
    for left, output in zip(skipped, MESSAGES, strict=True):
        assert left.reason == "bad"
        assert re.search(output, left.what)
    for part in parts:
        check(part.rows, part.encoder_input, encoder.tokenizer.placeholder)
    sound = ChatExamples(Letters(), encoder, **options)[MicroBatchRequest(0, np.array([0, 1, 3, 6]))]
    for part, expected in zip(parts, sound, strict=True):  # as if they had never been drawn
        assert torch.equal(part.rows.tokens, expected.rows.tokens)


@pytest.mark.parametrize("options", [{"packed_length": 60}, {"length_groups": 3}])
def test_a_micro_batch_without_a_usable_sample_trains_nothing(encoder, options):
    parts = ChatExamples(CorruptLetters(), encoder, skip_bad=True, **options)[MicroBatchRequest(0, np.array([2, 4]))]
    assert all((part.rows.labels == IGNORE).all() and not len(part.rows.samples) for part in parts)
    assert [len(part.skipped) for part in parts] == [2] + [0] * (len(parts) - 1)


@pytest.mark.parametrize(("index", "messages"), list(zip((2, 4, 5), MESSAGES, strict=True)))
def test_a_bad_sample_is_an_error_where_none_may_be_skipped(encoder, index, messages):
    for data in (ChatExamples(CorruptLetters(), encoder), ChatQuestions(CorruptLetters(), encoder, in_order=True)):
        with pytest.raises(BadSampleError, match=messages):
            data[MicroBatchRequest(0, np.array([index]))]


def test_questions_skip_bad_samples(encoder):
    data = ChatQuestions(CorruptLetters(), encoder, in_order=True, skip_bad=True)
    for some in (data, data.first(7)):
        batch = some[MicroBatchRequest(0, np.arange(7))]
        assert batch.prompts.samples.tolist() == batch.rows.samples.tolist() == [0, 1, 3, 6]
        assert [left.reason for left in batch.skipped] == ["bad"] * 3
        check(batch.rows, batch.encoder_input, encoder.tokenizer.placeholder)
    nothing = data[MicroBatchRequest(0, np.array([2]))]
    assert nothing.prompts.samples.tolist() == [PADDING_INDEX]
    assert len(nothing.skipped) == 1


def test_questions_are_ordered_by_lengths_that_cost_nothing(encoder):
    source = CorruptLetters()
    source.length = [5, 4, 9, 1, 2, 8, 3].__getitem__
    data = ChatQuestions(source, encoder, skip_bad=True)
    assert data[MicroBatchRequest(0, np.arange(7))].prompts.samples.tolist() == [3, 6, 1, 0]
