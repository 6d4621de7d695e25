"""Caches keys and values of prompts, to score continuations of them and to generate answers.

A prompt is computed once. Each text after it costs only its own tokens.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.distributed.collectives import all_reduce_max

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel

_MAX_COPIED = 16384
"""Largest number of positions whose keys and values are copied at once; 1 GB in bf16 for a Qwen2.5 of 7B weights."""

_MAX_SCORED = 1024
"""Largest number of positions scored at once; 0.6 GB for a vocabulary of 150,000 tokens."""


class GeneratedText(NamedTuple):
    """An answer that a model has generated."""

    tokens: list[int]  # without the end token
    log_likelihood: float  # of the tokens and the end token, in nats
    terms: int  # number of these; a truncated answer has no end token


class Decoder(Protocol):
    """The parts of a LanguageModel that a PrefixCache uses. V: vocabulary, C: width of the states."""

    vocabulary: int

    @property
    def causal_lm(self) -> "PreTrainedModel":
        """Causal language model of transformers, whose config determines the form of the cache."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the vectors of tokens: [...] -> [..., C]."""

    def decode(
        self, embeddings: Tensor, positions: Tensor, cache: "DynamicCache | None" = None, **options: object
    ) -> Any:
        """Run the decoder layers, which read and extend the cache.

        Args:
            embeddings: [B, L, C] of the tokens after those in the cache.
            positions: [B, L] of these tokens.
            cache: keys and values of the earlier tokens; None: there are none.
            **options: further arguments of the transformers model.
        """

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states: [N, C] -> [N, V]."""

    def evaluation_mode(self, device: torch.device) -> AbstractContextManager[None]:
        """Compute in evaluation mode and without gradients."""


def maximum_over_ranks(sharded: bool, device: torch.device) -> Callable[[int], int]:
    """Return a function from a number to its maximum over the ranks, or to itself if each rank has all weights.

    Ranks that share the weights (FSDP) must run the same number of forward passes; others need not wait for each other.

    Args:
        sharded: whether each rank holds a shard of the weights.
        device: device of the model.
    """
    return (lambda number: int(all_reduce_max(number, device))) if sharded else (lambda number: number)


class PrefixCache:
    """Keys and values of P prompts of L tokens, from one forward pass without gradients and dropout.

    Args:
        model: language model.
        embeddings: [P, L, C], padded on the left, with P at least 1.
        mask: [P, L] bool, false in the padding.
    """

    def __init__(self, model: Decoder, embeddings: Tensor, mask: Tensor) -> None:
        from transformers import DynamicCache

        self._model, self._mask = model, mask
        self._cache = DynamicCache(config=model.causal_lm.config)
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)  # from 0 at each prompt's first token, after its padding
        self._next = positions[:, -1] + 1  # [P]
        with model.evaluation_mode(mask.device):
            output = model.decode(embeddings, positions, self._cache, attention_mask=mask)
            # Prompts are padded on the left, so the last column is the last token of each.
            self._last = output.last_hidden_state[:, -1]  # [P, C]

    def log_likelihoods(
        self, tokens: Tensor, lengths: Tensor, prompts: Tensor, agree: Callable[[int], int] = lambda passes: passes
    ) -> Tensor:
        """Return the log-likelihood [N] float32 of each text after its prompt, in nats, summed over its tokens.

        Args:
            tokens: [N, T] int64, padded on the right.
            lengths: [N] int64, from 1 to T.
            prompts: [N] int64, index of each text's prompt.
            agree: maximum over the ranks of their numbers of forward passes, see `maximum_over_ranks`.
        """
        width = self._mask.shape[1] + tokens.shape[1]
        # Each text gets a copy of its prompt's keys and values, so texts are scored in batches of limited size.
        batches = torch.arange(len(tokens)).split(max(1, _MAX_COPIED // width)) if len(tokens) else ()
        missing = agree(len(batches)) - len(batches)  # before the first pass, as on the other ranks
        with self._model.evaluation_mode(self._mask.device):
            results = [self._score(tokens[batch], lengths[batch], prompts[batch]) for batch in batches]
            for _ in range(missing):
                # Under FSDP every forward pass gathers weights from all ranks; a rank without texts left must join.
                dummy = tokens.new_zeros(1)
                self._score(dummy.unsqueeze(1), dummy + 1, dummy)
        return torch.cat(results) if results else torch.zeros(0, device=tokens.device)

    def _score(self, tokens: Tensor, lengths: Tensor, prompts: Tensor) -> Tensor:
        number, width = tokens.shape
        # [N, T - 1], or [N, 1] for texts of a single token, as a pass needs an input.
        inputs = tokens[:, : max(1, width - 1)]  # the last token predicts none
        # [N, inputs]: positions go on where the prompt ends, without its padding.
        positions = self._next[prompts].unsqueeze(1) + torch.arange(inputs.shape[1], device=tokens.device)
        # [N, L + inputs]. Attention is causal, so no token reads the padding on its right.
        mask = F.pad(self._mask[prompts], (0, inputs.shape[1]), value=True)
        embeddings, cache = self._model.embed(inputs), self._copy_cache(prompts)
        output = self._model.decode(embeddings, positions, cache, attention_mask=mask)
        # The prompt's last state predicts the first token of the text, the state of token t predicts token t + 1.
        states = torch.cat((self._last[prompts].unsqueeze(1), output.last_hidden_state), dim=1)[:, :width]
        # [N, T, C]: state t predicts token t of the text
        real = torch.arange(width, device=tokens.device) < lengths.unsqueeze(1)
        chunks = zip(states[real].split(_MAX_SCORED), tokens[real].split(_MAX_SCORED), strict=True)
        # float32, whatever the format of the model: a sum over a long text in bf16 would lose its last terms.
        terms = torch.zeros((number, width), device=tokens.device)
        terms[real] = torch.cat([_log_probabilities(self._model.logits(states), targets) for states, targets in chunks])
        return terms.sum(dim=1)

    def generate(
        self, prompts: Tensor, max_new_tokens: int, end_ids: list[int], all_steps: bool = False
    ) -> list[GeneratedText]:
        """Generate the most likely continuation of each prompt, token by token.

        Args:
            prompts: [N] int64, indices of prompts, at least one.
            max_new_tokens: maximum length of an answer.
            end_ids: tokens that end an answer.
            all_steps: run `max_new_tokens` steps even if all answers have ended. Ranks that share the weights (FSDP)
                must run the same number of steps.
        """
        with self._model.evaluation_mode(self._mask.device):
            tokens, terms = self._greedy(prompts, max_new_tokens, end_ids, all_steps)
        answers = []
        for row, log_probabilities in zip(tokens.tolist(), terms.tolist(), strict=True):
            # Rows that end early go on until all have ended; what follows the end token is cut here.
            end = next((index for index, token in enumerate(row) if token in end_ids), len(row))
            scored = log_probabilities[: end + 1]
            answers.append(GeneratedText(row[:end], sum(scored), len(scored)))
        return answers

    def _greedy(self, prompts: Tensor, steps: int, end_ids: list[int], all_steps: bool) -> tuple[Tensor, Tensor]:
        """Return tokens [N, S] and their log-probabilities; those after a row's first end token are meaningless."""
        tokens, terms = zip(*self._steps(prompts, steps, end_ids, all_steps), strict=True)
        return torch.stack(tokens, dim=1), torch.stack(terms, dim=1)

    def stream(self, prompt: int, max_new_tokens: int, end_ids: list[int]) -> Iterator[list[int]]:
        """Yield the tokens of the answer to one prompt so far, after each token; arguments as for `generate`."""
        steps = self._steps(torch.tensor([prompt], device=self._mask.device), max_new_tokens, end_ids, False)
        tokens: list[int] = []
        while True:
            # A generator suspends at `yield`, and the caller must not find itself inside autocast and no_grad.
            with self._model.evaluation_mode(self._mask.device):  # not across a yield
                next_step = next(steps, None)
            if next_step is None or int(next_step[0]) in end_ids:
                return
            tokens.append(int(next_step[0]))
            yield [*tokens]

    def _steps(
        self, prompts: Tensor, steps: int, end_ids: list[int], all_steps: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the next token [N] of each prompt and its log-probability [N], until all answers have ended."""
        model, cache, mask, ends = self._model, self._copy_cache(prompts), self._mask[prompts], torch.tensor(end_ids)
        state, positions, ends = self._last[prompts], self._next[prompts].unsqueeze(1), ends.to(mask.device)
        ended = torch.zeros(len(prompts), dtype=torch.bool, device=mask.device)
        for step in range(1, steps + 1):
            logits = model.logits(state)  # [N, V]
            token = logits[:, : model.vocabulary].argmax(dim=-1)  # embedding rows beyond it belong to no token
            yield token, _log_probabilities(logits, token)
            ended |= torch.isin(token, ends)
            if step == steps or (not all_steps and ended.all()):
                return
            # Rows that have ended are computed as well: to drop them, the cache of all others would be copied.
            mask = F.pad(mask, (0, 1), value=True)
            embeddings = model.embed(token).unsqueeze(1)
            output = model.decode(embeddings, positions, cache, attention_mask=mask)
            state, positions = output.last_hidden_state[:, -1], positions + 1

    def _copy_cache(self, prompts: Tensor) -> "DynamicCache":
        """Return the keys and values of some prompts. The cache itself is not changed."""
        from transformers.cache_utils import DynamicLayer

        cache = copy(self._cache)
        # reorder_cache replaces keys and values, so a shallow copy is enough; other layers may change theirs in place.
        cache.layers = [copy(layer) if isinstance(layer, DynamicLayer) else deepcopy(layer) for layer in cache.layers]
        cache.reorder_cache(prompts)  # type: ignore[arg-type]  # LongTensor is the name of CPU tensors alone.
        return cache


def _log_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probabilities [n] float32 of tokens [n] under logits [n, V]."""
    return -F.cross_entropy(logits.float(), tokens, reduction="none")


@functools.cache
def cache_argument(decoder: type[nn.Module]) -> str:
    """Return the name of a decoder's argument for its cache.

    transformers 5.24 renamed `past_key_values` to `cache`, and 5.40 will refuse the old name.
    """
    return "cache" if "cache" in inspect.signature(decoder.forward).parameters else "past_key_values"
