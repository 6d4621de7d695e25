"""Rows of packed chats, and the gradients that a language model has for them."""

import torch

from datamodules.multimodal.batch import IGNORE


def rows(lengths, width):
    """Chats packed into a row of `width` each: tokens, labels, positions."""
    torch.manual_seed(width)
    tokens = torch.randint(10, 100, (len(lengths), width))
    positions = torch.arange(width).repeat(len(lengths), 1)
    for row, length in enumerate(lengths):
        positions[row, length:] -= length
    return tokens, tokens.masked_fill(positions < 3, IGNORE), positions


def trained(model, tokens, labels, positions):
    """Loss, and gradients by name."""
    model.zero_grad()
    embeddings = model.embed(tokens).detach().requires_grad_()
    total, _ = model.loss(model.hidden_states(embeddings, positions), labels)
    total.backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return total.detach(), {**found, "embeddings": embeddings.grad}
