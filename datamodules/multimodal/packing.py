"""Chats as rows of a batch: packed, in groups of similar length, or as prompts to be answered.

Chats that share a row do not see each other: each counts its positions from 0, by which the language model tells them
apart. Padding is computed like everything else, so little of it is time won; `Counts.real` says how little.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.multimodal.batch import IGNORE, Chat, Counts, Prompts, Rows
from engine.sampling import FILLER


def pack(
    chats: Sequence[Chat], samples: NDArray[np.int64], budget: int, pad: int
) -> tuple[Rows, NDArray[np.int64]]:
    """Chats in as few rows of at most `budget` tokens as first-fit-decreasing finds.

    Args:
        chats: none of them a FILLER's; without any the result is one row of padding, which weighs nothing.
        samples: int64 [S], the number of each chat's sample.
        budget: tokens of a row. A longer chat has a row for itself.
        pad: the padding token.

    Returns:
        The rows, as wide as the fullest; and, in the order of the rows, the place of each chat in `chats`.

    Raises:
        ValueError: a chat has no supervised token.
    """
    return _assembled(chats, samples, first_fit(_lengths(chats, samples), budget), pad)


def pad_rows(
    chats: Sequence[Chat], samples: NDArray[np.int64], groups: int, pad: int
) -> list[tuple[Rows, NDArray[np.int64]]]:
    """One chat a row, in `groups` batches from the shortest chats to the longest, as equal in number as can be.

    There are as many with few chats, some of them without any: where processes hold parts of the weights, all must
    compute as often. Arguments, results and errors otherwise as of `pack`.
    """
    if groups < 1:
        raise ValueError(f"chats cannot be dealt to {groups} groups; expected at least 1")
    lengths = _lengths(chats, samples)
    parts = np.array_split(np.argsort(lengths, kind="stable"), groups)
    return [_assembled(chats, samples, part[:, None].tolist(), pad) for part in parts]


def one_per_row(chats: Sequence[Chat], samples: NDArray[np.int64], pad: int) -> Rows:
    """One chat a row, in the order given, supervised or not; without any chat one row of padding, as `pack` has it."""
    return _assembled(chats, samples, [[place] for place in range(len(chats))], pad)[0]


def prompts(chats: Sequence[Chat], samples: NDArray[np.int64], pad: int) -> Prompts:
    """Prompts side by side, padded on the left, in the order given.

    Without any chat the result is one prompt of one token, for the sample FILLER, which nobody asked for.
    """
    if not len(chats):
        chats = [Chat(np.array([pad]), np.zeros(1, np.bool_), 0)]
        samples = np.array([FILLER])
    width = max(len(chat.tokens) for chat in chats)
    tokens, mask = np.full((len(chats), width), pad, np.int64), np.zeros((len(chats), width), np.bool_)
    for row, chat in enumerate(chats):
        tokens[row, width - len(chat.tokens) :] = chat.tokens
        mask[row, width - len(chat.tokens) :] = True
    placeholders = torch.tensor([chat.placeholders for chat in chats], dtype=torch.int64)
    return Prompts(*map(torch.from_numpy, (tokens, mask, np.array(samples, np.int64))), placeholders)


def first_fit(lengths: NDArray[np.int64], budget: int) -> list[list[int]]:
    """Bins of items: the longest first, each into the first bin that has room; an item beyond the budget alone."""
    if budget < 1:
        raise ValueError(f"a row cannot have a budget of {budget} tokens; expected at least 1")
    rows: list[list[int]] = []
    room = np.zeros(len(lengths), np.int64)
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


def _assembled(
    chats: Sequence[Chat], samples: NDArray[np.int64], rows: list[list[int]], pad: int
) -> tuple[Rows, NDArray[np.int64]]:
    # Two tokens, as one alone predicts nothing and would leave the model with empty tensors.
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
            # The first token follows nothing, so it is never predicted.
            labels[row, start + 1 : end] = np.where(chat.supervised, chat.tokens, IGNORE)[1:]
        positions[row, end:] = np.arange(width - end)
    order = np.array([item for row in rows for item in row], np.int64)
    placeholders = torch.tensor([chats[item].placeholders for item in order], dtype=torch.int64)
    taken = np.asarray(samples, np.int64)[order]
    lengths = [len(chats[item].tokens) for item in order]
    pairs = sum(length**2 for length in lengths)
    counts = Counts(sum(lengths), int((labels != IGNORE).sum()), int(placeholders.sum()), pairs)
    return Rows(*map(torch.from_numpy, (tokens, labels, positions, taken)), placeholders, counts), order
