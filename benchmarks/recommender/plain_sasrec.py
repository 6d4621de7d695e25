"""Peer: SASRec as it is usually implemented in PyTorch.

Histories are padded on the left to the model's largest length, whatever the batch contains. Attention is torch's
MultiheadAttention with a boolean mask. The loss computes the logits of all positions, including padding. Up to the
loss, pmixer/SASRec.pytorch and its many descendants do the same (the model is Kang and McAuley, ICDM 2018);
cross-entropy over all items is as in Klenitskiy and Vasilev, RecSys 2023.

The mask also hides padding, which equal losses require, so it has a part for each row and head. The public codes' mask
is only causal, [L, L], which would make this peer's step about a tenth cheaper: ratios to it are too large by as much.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.recommender.networks.attention.standard import StandardAttention
from lightning_modules.recommender.networks.blocks import EncoderBlock, FeedForward
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


class PlainSASRec(nn.Module):
    """SASRec with the weights of an encoder with standard attention, plain residuals and `norm: pre`.

    Without dropout the states of the positions with events are equal.
    """

    def __init__(self, encoder: SequenceEncoder) -> None:
        super().__init__()
        assert encoder.positions is not None and encoder.streams is None, "not the encoder of a plain SASRec"
        self.items, self.positions, self.norm = encoder.items, encoder.positions, encoder.norm
        self.dropout = nn.Dropout(encoder.dropout.p)
        self.blocks = nn.ModuleList(PlainBlock(block) for block in encoder.blocks)

    def forward(self, items: Tensor) -> Tensor:
        """Map items [B, L], padded with 0 on the left, to states [B, L, C]."""
        length = items.shape[1]
        positions = torch.arange(length, device=items.device)
        # [B, L, C]; the factor sqrt(C) is the paper's
        x = self.dropout(self.items(items) * math.sqrt(self.items.embedding_dim) + self.positions(positions))
        hidden = (positions > positions.unsqueeze(1)) | (items == 0).unsqueeze(1)  # [B, queries, keys]
        # A padded position attends to itself: a row without any key would be NaN.
        hidden &= positions != positions.unsqueeze(1)
        for block in self.blocks:
            x = block(x, hidden)
        return self.norm(x)

    def loss(self, items: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over all items; items and targets [B, L], 0 for padding."""
        # [B, L, V]: item i has the logit i - 1, and padding, 0, becomes the ignored -1.
        logits = self(items) @ self.items.weight[1:].T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten() - 1, ignore_index=-1)

    def binary_loss(self, items: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        """Return the mean of the paper's loss, equation 11, over events, with a negative each; all [B, L]."""
        states, real = self(items), targets > 0
        positive, negative = ((states * self.items(chosen)).sum(-1)[real] for chosen in (targets, negatives))
        apart = F.binary_cross_entropy_with_logits
        return apart(positive, torch.ones_like(positive)) + apart(negative, torch.zeros_like(negative))


class PlainBlock(nn.Module):
    """Block with the weights of a Block."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        assert isinstance(block, EncoderBlock) and block.feed_forward is not None, "not a block of a plain SASRec"
        ours, feed_forward = block.attention.function, block.feed_forward.function
        assert isinstance(ours, StandardAttention) and isinstance(feed_forward, FeedForward)
        self.attention = nn.MultiheadAttention(
            ours.output.in_features, ours.num_heads, dropout=ours.dropout, batch_first=True
        )
        for name, parameter in ours.projection.named_parameters():  # weight and bias
            self.attention.register_parameter(f"in_proj_{name}", parameter)
        for name, parameter in ours.output.named_parameters():
            self.attention.out_proj.register_parameter(name, parameter)
        self.attention_norm, self.feed_forward_norm = block.attention.norm, block.feed_forward.norm
        self.inner, self.outer = feed_forward.inner, feed_forward.outer
        self.dropout = nn.Dropout(block.attention.dropout.p)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Map X [B, L, C] to [B, L, C]; hidden [B, L, L] is true where a query must not attend."""
        normed = self.attention_norm(x)
        # [B * heads, L, L], the form that MultiheadAttention takes
        mask = hidden.repeat_interleave(self.attention.num_heads, 0)
        x = x + self.dropout(self.attention(normed, normed, normed, attn_mask=mask)[0])
        inner = self.dropout(F.relu(self.inner(self.feed_forward_norm(x))))
        return x + self.dropout(self.outer(inner))
