"""Computes positions of packed chats whose images have rows and columns (M-RoPE of Qwen2-VL and later)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


def mrope_positions(model: Any, tokens: Tensor, positions: Tensor, images: Tensor, grids: Tensor | None) -> Tensor:
    """Return positions [4, R, L]: in the text, from which transformers derives the mask, then time, row and column.

    Every chat counts from 0, as in a row of its own.

    Args:
        model: the model of transformers without its output layer.
        tokens: [R, L], rows of chats.
        positions: [R, L], counted from 0 in each chat.
        images: [R, L] bool, true at tokens of an image.
        grids: [I, 3], size of each image in patches; None without images.
    """
    if grids is None:
        return positions.expand(4, *positions.shape)
    # Rows are laid out one after the other, so each 0 starts a chat, padding included.
    row_starts = (positions == 0).flatten().nonzero().squeeze(1)
    lengths = torch.diff(row_starts, append=row_starts.new_tensor([positions.numel()])).tolist()
    chats = tokens.flatten().split(lengths)
    mask = pad_sequence([torch.ones_like(chat) for chat in chats], batch_first=True)
    # [3, chats, longest]: transformers computes positions of one chat a row only.
    spatial, _ = model.get_rope_index(
        pad_sequence(list(chats), batch_first=True),
        mm_token_type_ids=pad_sequence(list(images.flatten().long().split(lengths)), batch_first=True),
        image_grid_thw=grids,
        attention_mask=mask,
    )
    # [3, R L]
    flat = torch.cat([spatial[:, chat, :length] for chat, length in enumerate(lengths)], dim=1)
    return torch.cat([positions[None], flat.view(3, *positions.shape)])
