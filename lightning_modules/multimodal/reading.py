"""Prompts that a language model has read once, to go on from as often as need be: to score texts, and to write one.

The states of a prompt (keys and values of each layer) are kept. A text that may follow it costs its own tokens alone,
not the prompt's again; neither does an answer that is written.
"""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import DynamicCache

    from lightning_modules.multimodal.language_model import LanguageModel

_KEPT_AT_ONCE = 16384
"""Positions of which copies are kept at once; those of a Qwen2.5 of 7 billion weights take 1 GB in bf16."""

_SCORED_AT_ONCE = 1024
"""Positions; scores of 150,000 tokens take 0.6 GB."""


class Written(NamedTuple):
    """An answer that a model has written."""

    tokens: list[int]  # without the one that ends it
    log_likelihood: float  # of the tokens and of the one that ends it, nats
    count: int  # how many these are: where it was broken off there is no end among them


class Reading:
    """P prompts of L tokens, read in one pass.

    Args:
        model: reads them; without gradient, and without dropout.
        embeddings: [P, L, C], padded on the left. P is at least 1.
        mask: [P, L] bool, false in the padding.
    """

    def __init__(self, model: "LanguageModel", embeddings: Tensor, mask: Tensor) -> None:
        from transformers import DynamicCache

        self._model, self._mask = model, mask
        self._cache = DynamicCache(config=model.causal.config)
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
        self._next = positions[:, -1] + 1  # [P]
        with model.answering(mask.device):
            read = model.decode(embeddings, positions, attention_mask=mask, past_key_values=self._cache, use_cache=True)
            self._last = read.last_hidden_state[:, -1]  # [P, C]

    def log_likelihoods(
        self, tokens: Tensor, lengths: Tensor, prompts: Tensor, agree: Callable[[int], int] = lambda passes: passes
    ) -> Tensor:
        """[N] float32: how likely each text is after its prompt, in nats, summed over its tokens.

        Args:
            tokens: [N, T] int64, padded on the right.
            lengths: [N] int64, from 1 to T.
            prompts: [N] int64, the prompt that each follows.
            agree: where processes share the weights, makes of the number of passes that this one needs the one that
                all make.
        """
        width = self._mask.shape[1] + tokens.shape[1]
        parts = torch.arange(len(tokens)).split(max(1, _KEPT_AT_ONCE // width)) if len(tokens) else ()
        more = agree(len(parts)) - len(parts)  # before any of them, as the others ask it then, too
        with self._model.answering(self._mask.device):
            found = [self._scored(tokens[part], lengths[part], prompts[part]) for part in parts]
            for _ in range(more):
                one = tokens.new_zeros(1)
                self._scored(one.unsqueeze(1), one + 1, one)
        return torch.cat(found) if found else torch.zeros(0, device=tokens.device)

    def _scored(self, tokens: Tensor, lengths: Tensor, prompts: Tensor) -> Tensor:
        number, width = tokens.shape
        read = tokens[:, : max(1, width - 1)]  # what is the last token tells of none
        positions = self._next[prompts].unsqueeze(1) + torch.arange(read.shape[1], device=tokens.device)
        mask = F.pad(self._mask[prompts], (0, read.shape[1]), value=True)
        output = self._model.decode(
            self._model.embed(read), positions, attention_mask=mask, past_key_values=self._kept(prompts), use_cache=True
        )
        states = torch.cat((self._last[prompts].unsqueeze(1), output.last_hidden_state), dim=1)[:, :width]
        real = torch.arange(width, device=tokens.device) < lengths.unsqueeze(1)
        parts = zip(states[real].split(_SCORED_AT_ONCE), tokens[real].split(_SCORED_AT_ONCE), strict=True)
        terms = torch.zeros((number, width), device=tokens.device)
        terms[real] = torch.cat([_log_probabilities(self._model.scores(states), told) for states, told in parts])
        return terms.sum(dim=1)

    def write(
        self, prompts: Tensor, max_new_tokens: int, end_ids: list[int], all_steps: bool = False
    ) -> list[Written]:
        """The most likely continuation of each of these prompts, token by token.

        Args:
            prompts: [N] int64, at least one.
            max_new_tokens: where an answer is broken off.
            end_ids: tokens that end an answer.
            all_steps: take as many steps as the longest answer might, though all have ended before: where processes
                share the weights (FSDP), each must take as many as the others.
        """
        with self._model.answering(self._mask.device):
            tokens, terms = self._greedy(prompts, max_new_tokens, end_ids, all_steps)
        answers = []
        for row, told in zip(tokens.tolist(), terms.tolist(), strict=True):
            end = next((place for place, token in enumerate(row) if token in end_ids), len(row))
            told = told[: end + 1]
            answers.append(Written(row[:end], sum(told), len(told)))
        return answers

    def _greedy(self, prompts: Tensor, steps: int, end_ids: list[int], all_steps: bool) -> tuple[Tensor, Tensor]:
        """[N, S] tokens and their log-probabilities; what follows a row's first end token means nothing."""
        model, cache, mask, ends = self._model, self._kept(prompts), self._mask[prompts], torch.tensor(end_ids)
        state, positions, ends = self._last[prompts], self._next[prompts].unsqueeze(1), ends.to(mask.device)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=mask.device)
        chosen: list[Tensor] = []
        terms: list[Tensor] = []
        while len(chosen) < steps:
            scores = model.scores(state)
            token = scores[:, : model.vocabulary].argmax(dim=-1)
            chosen.append(token)
            terms.append(_log_probabilities(scores, token))
            ended |= torch.isin(token, ends)
            if len(chosen) == steps or (not all_steps and ended.all()):
                break
            mask = F.pad(mask, (0, 1), value=True)
            embeddings = model.embed(token).unsqueeze(1)
            output = model.decode(embeddings, positions, attention_mask=mask, past_key_values=cache, use_cache=True)
            state, positions = output.last_hidden_state[:, -1], positions + 1
        return torch.stack(chosen, dim=1), torch.stack(terms, dim=1)

    def _kept(self, prompts: Tensor) -> "DynamicCache":
        """States of these prompts, to go on from; the reading's own stay as they are."""
        from transformers.cache_utils import DynamicLayer

        cache = copy(self._cache)
        # Keys and values are replaced when others are chosen; what other layers keep may be changed in its place.
        cache.layers = [copy(kept) if isinstance(kept, DynamicLayer) else deepcopy(kept) for kept in cache.layers]
        cache.reorder_cache(prompts)
        return cache


def _log_probabilities(scores: Tensor, tokens: Tensor) -> Tensor:
    """[n] float32, of scores [n, V]."""
    return -F.cross_entropy(scores.float(), tokens, reduction="none")
