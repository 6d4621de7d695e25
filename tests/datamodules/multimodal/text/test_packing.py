"""Tests packed and padded rows: each chat once, within the budget, in a fixed order."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datamodules.multimodal.batch import IGNORE, Chat
from datamodules.multimodal.text.packing import first_fit, one_per_row, pack, pad_prompts, pad_rows
from engine.data.samplers import PADDING_INDEX

PAD = 0


def made(length, number=0):
    """Return a chat whose tokens encode its number, with the last third supervised; token 0 is the padding token."""
    tokens = np.arange(length) + 1000 * number
    return Chat(tokens, np.arange(length) >= min(2 * length // 3, length - 1), number % 4)


lengths = st.lists(st.integers(2, 40), max_size=30)


def taken_apart(rows):
    """The chats of rows as lists of (row, tokens, labels), split where positions restart; padding last in a row."""
    for number, (tokens, labels, positions) in enumerate(zip(rows.tokens, rows.labels, rows.positions, strict=True)):
        starts = torch.nonzero(positions == 0)[:, 0].tolist()
        for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            assert positions[start:end].tolist() == list(range(end - start))
            yield number, tokens[start:end].tolist(), labels[start:end].tolist()


def check(rows, order, chats, samples):
    """Check that each chat occurs once, complete and in order, and that padding has no weight; return row lengths."""
    assert rows.samples.tolist() == samples[order].tolist()
    assert rows.placeholders.tolist() == [chats[index].placeholders for index in order]
    expected, used = list(order), {}
    for row, tokens, labels in taken_apart(rows):
        if all(label == IGNORE for label in labels):
            assert tokens == [PAD] * len(tokens)
            continue
        chat = chats[expected.pop(0)]
        assert tokens == chat.tokens.tolist()
        assert labels == np.where(chat.supervised, chat.tokens, IGNORE).tolist()
        used[row] = used.get(row, 0) + len(tokens)
    assert not expected
    supervised = int((rows.labels != IGNORE).sum())
    pairs = sum(len(chats[index].tokens) ** 2 for index in order)
    assert rows.counts == (sum(used.values()), supervised, int(rows.placeholders.sum()), pairs)
    return used


def batch(sizes):
    chats = [made(size, number) for number, size in enumerate(sizes, 1)]
    return chats, np.arange(len(sizes)) * 7 + 3


@given(sizes=lengths, budget=st.integers(1, 60))
def test_packed_rows_hold_every_chat_once_and_whole_within_the_budget(sizes, budget):
    chats, samples = batch(sizes)
    rows, order = pack(chats, samples, budget, PAD)
    assert sorted(order.tolist()) == list(range(len(chats)))
    used = check(rows, order, chats, samples)
    chats_of = [row for row, _, labels in taken_apart(rows) if any(label != IGNORE for label in labels)]
    for row, tokens in used.items():
        assert tokens <= budget or chats_of.count(row) == 1
    assert rows.tokens.shape == (max(1, len(used)), max(used.values(), default=2))
    within = [size for size in sizes if size <= budget]
    # First fit guarantees that no two rows could be merged.
    fullness = sorted(tokens for tokens in used.values() if tokens <= budget)
    assert len(fullness) < 2 or fullness[0] + fullness[1] > budget
    assert sum(fullness) == sum(within)


@given(sizes=lengths, groups=st.integers(1, 6))
def test_padded_rows_hold_one_chat_each_in_groups_of_similar_length(sizes, groups):
    chats, samples = batch(sizes)
    parts = pad_rows(chats, samples, groups, PAD)
    assert len(parts) == groups
    orders = np.concatenate([order for _, order in parts])
    assert sorted(orders.tolist()) == list(range(len(chats)))
    assert [sizes[index] for index in orders] == sorted(sizes)
    for rows, order in parts:
        assert len(check(rows, order, chats, samples)) == len(order)
        assert rows.tokens.shape[1] == max((sizes[index] for index in order), default=2)


def test_packing_is_the_same_each_time_and_the_fullest_bins_come_first():
    assert first_fit(np.array([3, 9, 4, 7, 3, 3]), 10) == [[1], [3, 0], [2, 4, 5]]
    assert first_fit(np.array([12, 5, 5]), 10) == [[0], [1, 2]]


def test_a_long_mixture_is_nearly_all_real_when_packed():
    sizes = np.random.default_rng(0).integers(20, 120, 64)
    chats, samples = batch(sizes)
    packed, _ = pack(chats, samples, 512, PAD)
    padded = one_per_row(chats, samples, PAD)
    shares = [rows.counts.real / rows.tokens.numel() for rows in (packed, padded)]
    assert shares[0] > 0.97 > 0.7 > shares[1]


def test_without_a_chat_there_is_a_row_that_weighs_nothing():
    none = np.array([], np.int64)
    parts = pad_rows([], none, 4, PAD)
    assert len(parts) == 4
    assert not any(len(order) for _, order in parts)
    for rows in (*(padded for padded, _ in parts), pack([], none, 64, PAD)[0], one_per_row([], none, PAD)):
        assert rows.tokens.shape == (1, 2)
        assert (rows.labels == IGNORE).all()
        assert rows.positions.tolist() == [[0, 1]]
        assert len(rows.samples) == len(rows.placeholders) == 0
        assert rows.samples.dtype == torch.int64
        assert rows.counts == (0, 0, 0, 0)
    padded_prompts = pad_prompts([], none, PAD)
    assert padded_prompts.tokens.tolist() == [[PAD]]
    assert padded_prompts.mask.all()
    assert padded_prompts.samples.tolist() == [PADDING_INDEX]


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=9))
def test_prompts_are_padded_on_the_left(sizes):
    chats, samples = batch(sizes)
    padded_prompts = pad_prompts(chats, samples, PAD)
    assert padded_prompts.samples.tolist() == samples.tolist()
    assert padded_prompts.tokens.shape == (
        len(sizes),
        max(sizes),
    )
    for tokens, mask, chat, placeholders in zip(
        padded_prompts.tokens, padded_prompts.mask, chats, padded_prompts.placeholders, strict=True
    ):
        assert tokens[mask].tolist() == chat.tokens.tolist()
        assert (tokens[~mask] == PAD).all()
        assert mask.tolist() == sorted(mask.tolist())
        assert mask[-1]
        assert placeholders == chat.placeholders


def test_chats_without_an_answer_keep_their_order():
    chats = [Chat(np.arange(size), np.zeros(size, np.bool_), 1) for size in (3, 5)]
    rows = one_per_row(chats, np.array([8, 9]), PAD)
    assert rows.tokens.tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 4]]
    assert rows.samples.tolist() == [8, 9]
    assert rows.positions.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]]
    assert (rows.labels == IGNORE).all()


def test_the_first_token_of_a_chat_is_never_supervised():
    chat = Chat(np.array([5, 6, 7]), np.ones(3, np.bool_), 0)
    rows, _ = pack([chat, chat], np.array([0, 1]), 6, PAD)
    assert rows.labels.tolist() == [[IGNORE, 6, 7, IGNORE, 6, 7]]


def test_chats_that_cannot_be_packed_are_refused():
    chats, samples = [made(5), made(9)], np.array([40, 41])
    for assemble in (pack, pad_rows):
        with pytest.raises(ValueError, match="sample 41: no supervised token among its 9"):
            assemble([chats[0], chats[1]._replace(supervised=np.zeros(9, np.bool_))], samples, 6, PAD)
    with pytest.raises(ValueError, match="budget of 0 tokens"):
        pack(chats, samples, 0, PAD)
    with pytest.raises(ValueError, match="to 0 groups"):
        pad_rows(chats, samples, 0, PAD)
    with pytest.raises(ValueError, match="2 chats, but 1 samples"):
        pack(chats, samples[:1], 6, PAD)
