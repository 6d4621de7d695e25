"""Floating-point operations that a micro-batch takes, forward and backward, from shapes and settings alone.

Counted are products with weights and attention, 2 operations for each multiply-add. The backward pass takes as many
again for the gradient of what a layer reads, if something before it trains or is trained in it, and as many for the
gradient of weights that train. So a frozen language model behind a projector that trains costs two thirds of one that
trains, and a frozen tower a third. Norms, activations and look-ups are left out, as in PaLM (arXiv 2204.02311, app. B).

They are the model's operations, not the hardware's: what activation checkpointing computes again is not counted, so a
share of the peak made with them is MFU and not HFU. Padding counts, as it is computed like everything else, and
attention as it is computed: of every position to every other one in its row.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from datamodules.multimodal.batch import Rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LanguageModelFlops(NamedTuple):
    """Of a language model, forward and backward."""

    token: int  # of each position
    pair: int  # of two positions in attention
    scored: int  # of each supervised token: only there are scores computed

    def of(self, rows: Rows, apart: bool) -> int:
        """Of rows of chats.

        Args:
            apart: attention is computed within each chat, not within the whole row.
        """
        count, length = rows.tokens.shape
        pairs = rows.counts.pairs if apart else count * length**2
        return self.token * count * length + self.pair * pairs + self.scored * rows.counts.supervised


def language_model_flops(causal: "PreTrainedModel", behind_trained: bool) -> LanguageModelFlops | None:
    """What a causal language model takes, with its adapters; None where weights are used otherwise than in layers.

    Args:
        behind_trained: something that trains makes what it reads, beside its own embeddings.
    """
    decoder, head = causal.get_decoder(), causal.get_output_embeddings()
    if not _layers_alone(decoder):
        return None
    config = causal.config.get_text_config()
    heads = config.num_attention_heads
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    back = behind_trained or trains(causal.get_input_embeddings())
    token, pair = 0, 0
    for layer in decoder.layers:
        back = back or trains(layer)
        token += products(layer, back)
        pair += attention(width, back)
    token += sum(products(part, back) for part in decoder.children() if part is not decoder.layers)
    return LanguageModelFlops(token, pair, products(head, back))


def view_flops(network: nn.Module, layers: Iterable[nn.Module], width: int, patches: int, tokens: int) -> int:
    """What a vision transformer takes for one view.

    Args:
        network: has patch embeddings, `network.embeddings`, and `layers`.
        width: of the states, of all heads together.
        patches: of the view.
        tokens: that the layers read, with class and register tokens.
    """
    total, back = patches * products(network.embeddings, back=False), trains(network.embeddings)
    for layer in layers:
        back = back or trains(layer)
        total += tokens * products(layer, back) + tokens**2 * attention(width, back)
    return total


def stack_flops(layers: Iterable[nn.Module], behind_trained: bool) -> int:
    """What layers take that are run one after the other, for each position."""
    total, back = 0, behind_trained
    for layer in layers:
        total += products(layer, back)
        back = back or trains(layer)
    return total


def products(network: nn.Module, back: bool) -> int:
    """What a network's linear layers and convolutions take, all at one position.

    Args:
        back: gradients pass through them to what they read.
    """
    found = (part for part in network.modules() if isinstance(part, _LAYERS))
    return sum(2 * _weights(part) * (1 + back + part.weight.requires_grad) for part in found)


def attention(width: int, back: bool) -> int:
    """What one layer takes for two positions: the one's score, and its share of the other's values."""
    return 4 * width * (1 + 2 * back)


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)


def _weights(layer: nn.Module) -> int:
    # From the settings: a weight may be held in parts, each by another process.
    if isinstance(layer, nn.Linear):
        return layer.in_features * layer.out_features
    return layer.in_channels // layer.groups * layer.out_channels * math.prod(layer.kernel_size)


def _layers_alone(network: nn.Module) -> bool:
    """Whether each matrix belongs to a layer that is known; experts (of which a token sees some) do not."""
    known = (*_LAYERS, nn.Embedding)
    others = (part for part in network.modules() if not isinstance(part, known))
    return all(weight.ndim < 2 for part in others for weight in part.parameters(recurse=False))


def trains(network: nn.Module) -> bool:
    """Whether any of its weights do."""
    return any(weight.requires_grad for weight in network.parameters())
