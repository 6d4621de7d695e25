"""A causal language model that reads vectors: embeddings of tokens with another modality's features among them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datamodules.multimodal.batch import IGNORE
from lightning_modules.multimodal.compiled import compile_layers, uncompiled
from lightning_modules.multimodal.language_model_settings import LanguageModelSettings
from lightning_modules.multimodal.loading import choose_trained, load_language_model
from lightning_modules.multimodal.output_scores import final_scores
from lightning_modules.multimodal.precision import Precision
from lightning_modules.multimodal.reading import Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SCORED_AT_ONCE = 1024  # positions; scores of 150,000 tokens take 0.6 GB

Criterion = Callable[[Tensor, Tensor], Tensor]
"""Loss terms [n] of scores [n, V] in float32 and the right tokens [n]."""


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """The negative log-probability of each right token."""
    return F.cross_entropy(scores, targets, reduction="none")


class LanguageModel(nn.Module):
    """Any causal language model of transformers: R rows of L tokens, states of width C, a vocabulary of V.

    Gradients pass through it to the embeddings whatever is trained. It computes in `precision.autocast` by itself,
    also inside an fp16 autocast.

    Args:
        vocabulary: tokens of the tokenizer; the model may have more, which are never generated.
    """

    widened: int
    """Tokens of the tokenizer that were new to the pretrained model."""

    def __init__(self, settings: LanguageModelSettings, vocabulary: int, precision: Precision) -> None:
        super().__init__()
        settings.check()
        self.settings, self.vocabulary, self.precision = settings, vocabulary, precision
        network, self.widened = load_language_model(settings, vocabulary, precision)
        self.network = choose_trained(network, settings, precision)
        if settings.compile:
            compile_layers(self.causal.get_decoder().layers)

    @property
    def causal(self) -> "PreTrainedModel":
        """The model as transformers knows it; adapters work inside it."""
        return self.network.get_base_model() if self.settings.trainable == "lora" else self.network

    @property
    def hidden_size(self) -> int:
        """C."""
        return self.causal.get_input_embeddings().embedding_dim

    def embed(self, tokens: Tensor) -> Tensor:
        """[...] -> [..., C]."""
        return self.causal.get_input_embeddings()(tokens)

    def hidden_states(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        """States [R, L, C] after the last norm. No chat attends to another one, nor to padding.

        Args:
            embeddings: [R, L, C].
            positions: [R, L], from 0 in each chat: where they begin anew, another chat begins.
        """
        rows = embeddings.shape[:2]
        if self.settings.attention == "flash_attention_2":  # it tells chats apart within one row only
            embeddings, positions = embeddings.reshape(1, -1, embeddings.shape[-1]), positions.reshape(1, -1)
        with self._autocast(embeddings.device):
            # With a cache, transformers does not look at positions to find out where chats begin.
            states = self.decode(embeddings, positions, use_cache=False).last_hidden_state
        return states.reshape(*rows, -1)

    def loss(self, states: Tensor, labels: Tensor, criterion: Criterion = cross_entropy) -> tuple[Tensor, Tensor]:
        """Sum of the loss terms of supervised tokens, and their number; arguments as of `terms`."""
        return self.terms(states, labels, criterion).sum(), (labels[:, 1:] != IGNORE).sum()

    def terms(self, states: Tensor, labels: Tensor, criterion: Criterion = cross_entropy) -> Tensor:
        """[N] float32, one loss term of each supervised token, row by row; each token is told from the state before.

        Args:
            states: [R, L, C].
            labels: [R, L], not shifted, IGNORE where a token is not supervised; so is the first token of every chat.
            criterion: makes terms [n] of scores [n, V] and tokens [n].
        """
        targets = labels[:, 1:]
        supervised = targets != IGNORE
        # Scores of all tokens at all positions would be the peak of memory, and most are not needed.
        states, targets = states[:, :-1][supervised], targets[supervised]
        parts = zip(states.split(_SCORED_AT_ONCE), targets.split(_SCORED_AT_ONCE), strict=True)
        if not torch.is_grad_enabled():
            return torch.cat([self._terms(*part, criterion) for part in parts])
        if self.settings.activation_checkpointing:
            return torch.cat([checkpoint(self._terms, *part, criterion, use_reentrant=False) for part in parts])
        return self._terms(states, targets, criterion)

    def generate(
        self,
        embeddings: Tensor,
        mask: Tensor,
        max_new_tokens: int,
        end_ids: list[int],
        all_steps: bool = False,
    ) -> list[list[int]]:
        """The most likely continuation of each prompt, without the token that ends it; see Reading.

        Args:
            embeddings: [B, L, C] of the prompts, padded on the left.
            mask: [B, L] bool, false in the padding.
            max_new_tokens, end_ids, all_steps: see Reading.write.
        """
        everyone = torch.arange(len(mask), device=mask.device)
        written = Reading(self, embeddings, mask).write(everyone, max_new_tokens, end_ids, all_steps)
        return [answer.tokens for answer in written]

    @contextmanager
    def answering(self, device: torch.device) -> Iterator[None]:
        """Computes without gradients and dropout inside, layer by layer as written, in the precision's formats."""
        training = self.training
        self.eval()  # with activation checkpointing, transformers drops the cache in training mode
        try:
            with torch.no_grad(), self._autocast(device), uncompiled(self.settings.compile):
                yield
        finally:
            self.train(training)

    def decode(self, embeddings: Tensor, positions: Tensor, **options: Any) -> Any:
        """What the layers of transformers make of embeddings, with its options."""
        return self.causal.get_decoder()(inputs_embeds=embeddings, position_ids=positions, **options)

    def scores(self, states: Tensor) -> Tensor:
        """[N, C] -> [N, V]."""
        return final_scores(self.causal.get_output_embeddings()(states), self.causal.config)

    def _terms(self, states: Tensor, targets: Tensor, criterion: Criterion) -> Tensor:
        with self._autocast(states.device):
            scores = self.scores(states)
        with torch.autocast(states.device.type, enabled=False):
            wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
            return criterion(wide, targets)

    def _autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        dtype = self.precision.autocast
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)
