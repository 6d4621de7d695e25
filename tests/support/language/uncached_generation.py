"""Greedy answers of a language model without a cache, as the reference of those with one."""

import torch
from torch.nn import functional as F


def left_padded(prompts):
    length = max(len(prompt) for prompt in prompts)
    tokens = torch.stack([F.pad(prompt, (length - len(prompt), 0), value=7) for prompt in prompts])
    mask = torch.stack([torch.arange(length) >= length - len(prompt) for prompt in prompts])
    return tokens, mask


def without_cache(model, prompt, steps, end_ids):
    """Token by token, each time from the beginning, alone."""
    tokens = prompt.unsqueeze(0)
    for _ in range(steps):
        states = model.hidden_states(model.embed(tokens), torch.arange(tokens.shape[1]).unsqueeze(0))
        scores = model.causal_lm.get_output_embeddings()(states[:, -1])
        if (token := scores.argmax(dim=-1)).item() in end_ids:
            break
        tokens = torch.cat([tokens, token.unsqueeze(0)], dim=1)
    return tokens[0, len(prompt) :].tolist()
