"""Wraps a causal language model whose inputs are vectors: embeddings of tokens and features of another modality."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datamodules.multimodal.batch import IGNORE
from lightning_modules.multimodal.language.adapters import freeze_and_add_adapters, whole_model
from lightning_modules.multimodal.language.compile import compile_layers, uncompiled
from lightning_modules.multimodal.language.kernels.flex_attention import cached_attention, evaluates_with_sdpa
from lightning_modules.multimodal.language.kernels.kernel_checks import require_plain_output
from lightning_modules.multimodal.language.kernels.liger import liger_cross_entropy
from lightning_modules.multimodal.language.language_model_loading import load_language_model
from lightning_modules.multimodal.language.logit_processing import process_logits
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.prefix_cache import PrefixCache, cache_argument
from lightning_modules.multimodal.language.settings import LanguageModelSettings

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import DynamicCache, PreTrainedModel

_MAX_SCORED = 1024  # positions at once; their logits over 150,000 tokens take 0.6 GB

Criterion = Callable[[Tensor, Tensor], Tensor]
"""Loss terms [n] of logits [n, V] in float32 and target tokens [n]."""


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-probability [n] of each target [n], given logits [n, V]."""
    return F.cross_entropy(logits, targets, reduction="none")


class LanguageModel(nn.Module):
    """A causal language model of transformers. Shapes: R rows of L tokens, states of width C, a vocabulary of V.

    Gradients pass through it to the embeddings even if it is frozen. It computes in `precision.autocast`, also inside
    an fp16 autocast.

    Args:
        settings: settings of the model.
        vocabulary: number of the tokenizer's tokens. The model may have more, which are never generated.
        precision: number formats of weights and computations.
        device: where the model computes, by default the CPU. Weights are quantized there; the result does not depend
            on it.
        network: the model, if it is loaded already; it has all tokens of the tokenizer.
    """

    widened: int
    """Number of the tokenizer's tokens that the pretrained model does not have."""

    def __init__(
        self,
        settings: LanguageModelSettings,
        vocabulary: int,
        precision: Precision,
        device: torch.device | None = None,
        network: "PreTrainedModel | None" = None,
    ) -> None:
        super().__init__()
        settings.check()
        if evaluates_with_sdpa(settings, device):
            # An evaluation or export on the CPU of a model that flex_attention trained: both compute the same.
            settings = replace(settings, attention="sdpa")
        self.settings, self.vocabulary, self.precision = settings, vocabulary, precision
        self.widened = 0
        if network is None:
            network, self.widened = load_language_model(settings, vocabulary, precision)
        # Formats, adapters and quantization change layers in place; checks and compilation need the final layers.
        self.network = freeze_and_add_adapters(network, settings, precision, device)
        require_plain_output(self.causal_lm, settings)
        if settings.compile:
            compile_layers(self.causal_lm.get_decoder().layers)

    @property
    def causal_lm(self) -> "PreTrainedModel":
        """The model of transformers, with the adapters inside it."""
        lora = self.settings.trainable == "lora"
        return cast("PreTrainedModel", self.adapted.get_base_model() if lora else self.network)

    @property
    def adapted(self) -> "PeftModel":
        """The model of peft, with its adapters; only if `trainable` is `lora`."""
        return cast("PeftModel", self.network)  # `freeze_and_add_adapters` adds the adapters

    def merge(self) -> "PreTrainedModel":
        """Return the model of transformers, dequantized and with merged adapters. Do not use `self` afterwards."""
        return whole_model(self.network, self.settings)

    @property
    def hidden_size(self) -> int:
        """Width C of the states."""
        embeddings: Any = self.causal_lm.get_input_embeddings()  # of another class in each model
        return embeddings.embedding_dim

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the embeddings [..., C] of tokens [...]."""
        return self.causal_lm.get_input_embeddings()(tokens)

    def hidden_states(self, embeddings: Tensor, positions: Tensor) -> Tensor:
        """Return the states [R, L, C] after the last norm. A chat attends to no other chat and not to padding.

        transformers derives the attention mask from `positions`: causal and block-diagonal, a block for each chat (a
        document mask).

        Args:
            embeddings: [R, L, C].
            positions: [R, L], counted from 0 in each chat; a 0 marks the start of a chat.
        """
        rows = embeddings.shape[:2]
        if self.settings.attention == "flash_attention_2":  # it separates chats within one row only
            embeddings, positions = embeddings.reshape(1, -1, embeddings.shape[-1]), positions.reshape(1, -1)
        with self._autocast(embeddings.device):
            # With a cache, transformers ignores the positions and would not separate the chats.
            # [R, L, C], or [1, R L, C] for flash attention
            states = self.decode(embeddings, positions).last_hidden_state
        return states.reshape(*rows, -1)

    def loss(self, states: Tensor, labels: Tensor, criterion: Criterion = cross_entropy) -> tuple[Tensor, Tensor]:
        """Return the sum of the loss terms of the supervised tokens, a scalar, and their number.

        Args:
            states: [R, L, C]; state i predicts token i + 1.
            labels: [R, L], see `terms`.
            criterion: see `terms`.
        """
        count = (labels[:, 1:] != IGNORE).sum()
        if self._fuses(states, criterion):
            # With "sum", Liger computes the gradients in the forward pass, chunk by chunk. With "none" the backward
            # pass would compute the logits a second time.
            return self._fused_cross_entropy(*_select_supervised(states, labels), "sum"), count
        return self.terms(states, labels, criterion).sum(), count

    def terms(self, states: Tensor, labels: Tensor, criterion: Criterion = cross_entropy) -> Tensor:
        """Return the loss terms [N] float32 of the supervised tokens, row by row.

        Args:
            states: [R, L, C]; state i predicts token i + 1.
            labels: [R, L], not shifted, IGNORE at unsupervised tokens and at the first token of each chat.
            criterion: computes terms [n] from logits [n, V] and tokens [n].
        """
        fuses = self._fuses(states, criterion)
        states, targets = _select_supervised(states, labels)
        return (
            self._fused_cross_entropy(states, targets, "none")
            if fuses
            else self.supervised_terms(states, targets, criterion)
        )

    def supervised_terms(self, states: Tensor, targets: Tensor, criterion: Criterion = cross_entropy) -> Tensor:
        """Return the loss terms [N] float32 of states [N, C] and the tokens [N] that follow them."""
        parts = zip(states.split(_MAX_SCORED), targets.split(_MAX_SCORED), strict=True)
        # Evaluations keep no graph, so the logits of one chunk at a time are in memory.
        if not torch.is_grad_enabled():
            return torch.cat([self._terms(*part, criterion) for part in parts])
        # In training autograd keeps the logits of every chunk, so chunks save memory only if they are recomputed.
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
        """Return the most likely continuation of each prompt, without its end token.

        Args:
            embeddings: [B, L, C] of the prompts, padded on the left.
            mask: [B, L] bool, false in the padding.
            max_new_tokens: see PrefixCache.generate.
            end_ids: see PrefixCache.generate.
            all_steps: see PrefixCache.generate.
        """
        prompts = torch.arange(len(mask), device=mask.device)
        answers = PrefixCache(self, embeddings, mask).generate(prompts, max_new_tokens, end_ids, all_steps)
        return [answer.tokens for answer in answers]

    @contextmanager
    def evaluation_mode(self, device: torch.device) -> Iterator[None]:
        """Compute without gradients, dropout and compiled layers inside the context."""
        training = self.training
        self.eval()  # with activation checkpointing, transformers drops the cache in training mode
        try:
            attention, plain = cached_attention(self.causal_lm, self.settings), uncompiled(self.settings.compile)
            with torch.no_grad(), self._autocast(device), attention, plain:
                yield
        finally:
            self.train(training)

    def decode(
        self, embeddings: Tensor, positions: Tensor, cache: "DynamicCache | None" = None, **options: object
    ) -> Any:
        """Run the decoder layers of transformers on embeddings [R, L, C]; `options` go to its forward.

        With a cache, the layers read keys and values of earlier positions from it, and append their own.
        """
        decoder = self.causal_lm.get_decoder()
        if cache is not None:
            options[cache_argument(decoder.__class__)] = cache
        return decoder(inputs_embeds=embeddings, position_ids=positions, use_cache=cache is not None, **options)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [N, V] of states [N, C]."""
        return process_logits(self.causal_lm.get_output_embeddings()(states), self.causal_lm.config.get_text_config())

    def _fuses(self, states: Tensor, criterion: Criterion) -> bool:
        is_liger = self.settings.loss_kernel == "liger" and criterion is cross_entropy
        return is_liger and states.is_cuda and torch.is_grad_enabled()

    def _fused_cross_entropy(self, states: Tensor, targets: Tensor, reduction: Literal["none", "sum"]) -> Tensor:
        with self._autocast(states.device):
            return liger_cross_entropy(self.causal_lm.get_output_embeddings(), states, targets, reduction)

    def _terms(self, states: Tensor, targets: Tensor, criterion: Criterion) -> Tensor:
        with self._autocast(states.device):
            logits = self.logits(states)  # [n, V], in the format of autocast
        # A softmax over 150,000 logits loses its small terms in bf16: float32, or float64 under 64-true.
        with torch.autocast(states.device.type, enabled=False):
            return criterion(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets)

    def _autocast(self, device: torch.device) -> AbstractContextManager[Any]:
        dtype = self.precision.autocast
        return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def _select_supervised(states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states [N, C] that predict supervised tokens, and these tokens [N]; see `LanguageModel.terms`.

    Logits of all positions would be the peak of memory, and only the logits of supervised tokens are needed.
    """
    # Labels are not shifted: state i predicts token i + 1. The first label of a chat is IGNORE, so no chat of a packed
    # row is predicted from the chat before it.
    targets = labels[:, 1:]
    # A mask would be searched three times, each time with a wait for the device: twice here, once in the backward pass.
    supervised = (targets != IGNORE).nonzero(as_tuple=True)
    return states[supervised], targets[supervised]
