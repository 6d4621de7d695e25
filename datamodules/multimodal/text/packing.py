"""Arranges chats as rows of a batch: packed, in groups of similar length, or as prompts.

Chats in the same row do not attend to each other: positions restart at 0 in each chat, from which the language model
derives its attention mask (a document mask, see `LanguageModel.hidden_states`). Padding costs as much compute as
tokens; `Counts.real` measures how much of a batch is padding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.multimodal.batch import IGNORE, Chat, Counts, Prompts, TokenRows
from engine.data.samplers import PADDING_INDEX


def pack(
    chats: Sequence[Chat], samples: NDArray[np.int64], budget: int, pad: int
) -> tuple[TokenRows, NDArray[np.int64]]:
    """Pack chats into as few rows of at most `budget` tokens as first-fit-decreasing finds.

    Args:
        chats: the chats, without padding samples. Without any chat the result is one row of padding, with zero weight.
        samples: int64 [S], sample of each chat.
        budget: tokens of a row. A longer chat gets a row of its own.
        pad: the padding token.

    Returns:
        The rows, as wide as the fullest row; and the index in `chats` of each chat, in the order of the rows.

    Raises:
        ValueError: a chat has no supervised token.
    """
    return _assemble(chats, samples, first_fit(_lengths(chats, samples), budget), pad)


def pad_rows(
    chats: Sequence[Chat], samples: NDArray[np.int64], groups: int, pad: int
) -> list[tuple[TokenRows, NDArray[np.int64]]]:
    """Return one chat per row, in `groups` batches of nearly equal size from the shortest chats to the longest.

    The number of batches is fixed, even if some are empty: with sharded weights, all ranks must run the same number of
    forward passes. For other arguments, results and errors see `pack`.
    """
    if groups < 1:
        raise ValueError(f"chats cannot be split into {groups} groups; expected at least 1")
    lengths = _lengths(chats, samples)
    parts = np.array_split(np.argsort(lengths, kind="stable"), groups)
    return [_assemble(chats, samples, part[:, None].tolist(), pad) for part in parts]


def one_per_row(chats: Sequence[Chat], samples: NDArray[np.int64], pad: int) -> TokenRows:
    """Return one chat per row, in the given order, supervised or not.

    Without any chat the result is one row of padding.
    """
    return _assemble(chats, samples, [[index] for index in range(len(chats))], pad)[0]


def pad_prompts(chats: Sequence[Chat], samples: NDArray[np.int64], pad: int) -> Prompts:
    """Batch prompts in the given order, padded on the left.

    Without any chat the result is one prompt of one token, for the padding sample.

    Args:
        chats: B prompts.
        samples: [B], sample of each prompt.
        pad: the padding token.
    """
    if not len(chats):
        chats = [Chat(np.array([pad]), np.zeros(1, np.bool_), 0)]
        samples = np.array([PADDING_INDEX])
    width = max(len(chat.tokens) for chat in chats)
    tokens, mask = np.full((len(chats), width), pad, np.int64), np.zeros((len(chats), width), np.bool_)
    for row, chat in enumerate(chats):
        tokens[row, width - len(chat.tokens) :] = chat.tokens
        mask[row, width - len(chat.tokens) :] = True
    placeholders = torch.tensor([chat.placeholders for chat in chats], dtype=torch.int64)
    sample_ids = torch.from_numpy(np.array(samples, np.int64))
    return Prompts(torch.from_numpy(tokens), torch.from_numpy(mask), sample_ids, placeholders)


def first_fit(lengths: NDArray[np.int64], budget: int) -> list[list[int]]:
    """Assign items to bins by first-fit-decreasing; an item larger than the budget gets a bin of its own.

    Args:
        lengths: [n], length of each item.
        budget: largest sum of the lengths of a bin.

    Returns:
        Indices of the items of each bin.
    """
    if budget < 1:
        raise ValueError(f"a row cannot have a budget of {budget} tokens; expected at least 1")
    rows: list[list[int]] = []
    room = np.zeros(len(lengths), np.int64)
    # Longest first; a stable sort gives the same rows on every machine.
    for item in np.argsort(-lengths, kind="stable").tolist():
        fits = room[: len(rows)] >= lengths[item]
        row = int(fits.argmax()) if fits.any() else len(rows)
        if row == len(rows):
            rows.append([])
            room[row] = budget
        rows[row].append(item)
        room[row] -= lengths[item]
    return rows


def _lengths(chats: Sequence[Chat], samples: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(chats) != len(samples):
        raise ValueError(f"{len(chats)} chats, but {len(samples)} samples")
    for chat, sample in zip(chats, samples, strict=True):
        if not chat.supervised[1:].any():
            raise ValueError(f"sample {sample}: no supervised token among its {len(chat.tokens)} to learn from")
    return np.array([len(chat.tokens) for chat in chats], np.int64)


def _assemble(
    chats: Sequence[Chat], samples: NDArray[np.int64], rows: list[list[int]], pad: int
) -> tuple[TokenRows, NDArray[np.int64]]:
    # Without chats a row has two tokens: one predicts nothing, and the model would get empty tensors.
    width = max((sum(len(chats[item].tokens) for item in row) for row in rows), default=2)
    shape = (max(1, len(rows)), width)
    tokens, labels = np.full(shape, pad, np.int64), np.full(shape, IGNORE, np.int64)
    positions = np.zeros(shape, np.int64)
    for row, items in enumerate(rows or [[]]):
        end = 0
        for item in items:
            chat = chats[item]
            start, end = end, end + len(chat.tokens)
            tokens[row, start:end] = chat.tokens
            positions[row, start:end] = np.arange(end - start)
            # The first token of a chat has no context, so it is never predicted.
            labels[row, start + 1 : end] = np.where(chat.supervised, chat.tokens, IGNORE)[1:]
        # Padding looks like a further chat, so no chat attends to it; its labels are IGNORE.
        positions[row, end:] = np.arange(width - end)
    order = np.array([item for row in rows for item in row], np.int64)
    placeholders = torch.tensor([chats[item].placeholders for item in order], dtype=torch.int64)
    sample_ids = np.asarray(samples, np.int64)[order]
    lengths = [len(chats[item].tokens) for item in order]
    pairs = sum(length**2 for length in lengths)  # of query and key: chats attend to themselves only
    counts = Counts(sum(lengths), int((labels != IGNORE).sum()), int(placeholders.sum()), pairs)
    packed = TokenRows(
        torch.from_numpy(tokens),
        torch.from_numpy(labels),
        torch.from_numpy(positions),
        torch.from_numpy(sample_ids),
        placeholders,
        counts,
    )
    return packed, order
