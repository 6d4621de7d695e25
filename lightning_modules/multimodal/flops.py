"""Counts floating-point operations of a micro-batch, forward and backward, from shapes and settings.

Products with weights and attention are counted, with 2 operations for each multiply-add. The backward pass adds the
same number for the gradient of a layer's input, if weights at or before that input train, and the same number for the
gradient of its weights, if they train. So a frozen language model behind a trainable projector costs two thirds of a
trainable one, and a frozen tower one third. Norms, activations and embedding look-ups are omitted, as in PaLM
(arXiv 2204.02311, appendix B).

These are the model's operations, not the hardware's: activation checkpointing adds none, so their share of the peak is
the MFU and not the HFU. Padding counts, and attention counts all pairs of positions that are computed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from datamodules.multimodal.batch import ChatTrainBatch, TokenRows

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
"""Layers whose FLOPs are counted."""


def chat_throughput_counts(
    batch: Sequence[ChatTrainBatch], token_metric: str, flops: Callable[[ChatTrainBatch], int | None]
) -> dict[str, float]:
    """Return the counts of a micro-batch, see LockstepModule.throughput_counts.

    Args:
        batch: parts of the micro-batch.
        token_metric: name of the number of placeholder tokens.
        flops: returns the FLOPs of a part, or None if not known.
    """
    counts, operations = [part.rows.counts for part in batch], [flops(part) for part in batch]
    # The FLOPs of some parts alone would understate the MFU, so an unknown part leaves the metric out.
    known_operations = [number for number in operations if number is not None]
    return {
        "tokens": sum(count.real for count in counts),
        "positions": sum(part.rows.tokens.numel() for part in batch),
        "supervised_tokens": sum(count.supervised for count in counts),
        token_metric: sum(count.features for count in counts),
        **({"flops": sum(known_operations)} if len(known_operations) == len(operations) else {}),
    }


class LanguageModelFlops(NamedTuple):
    """FLOPs of a language model, forward and backward."""

    token: int  # per position
    pair: int  # per pair of positions in attention
    scored: int  # per supervised token, as logits are computed only there

    def total(self, rows: TokenRows, attention_within_chats: bool) -> int:
        """Return the FLOPs of rows of chats.

        Args:
            rows: R rows of L tokens.
            attention_within_chats: whether attention is computed within each chat, not within the whole row.
        """
        count, length = rows.tokens.shape
        # sdpa with a block mask computes all pairs of a row, also those between chats, which the mask then drops.
        pairs = rows.counts.pairs if attention_within_chats else count * length**2
        return self.token * count * length + self.pair * pairs + self.scored * rows.counts.supervised


def language_model_flops(causal: "PreTrainedModel", behind_trained: bool) -> LanguageModelFlops | None:
    """Return the FLOPs of a causal language model with its adapters, or None if it has layers of unknown kinds.

    Args:
        causal: model of transformers.
        behind_trained: whether its input depends on trainable weights besides its own embeddings.
    """
    decoder, head = causal.get_decoder(), causal.get_output_embeddings()
    if not _has_known_layers_only(decoder):
        return None
    config = causal.config.get_text_config()
    heads = config.num_attention_heads
    # The heads of Qwen3 and Gemma have a width of their own, so all of them may be wider than the states.
    width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
    back = behind_trained or has_trainable_weights(causal.get_input_embeddings())
    token, pair = 0, 0
    for layer in decoder.layers:
        # From the first trainable layer on, gradients pass through all layers; before it there are none.
        back = back or has_trainable_weights(layer)
        token += product_flops(layer, back)
        pair += attention_flops(width, back)
    # Networks beside the layers, such as projections of the embeddings in some architectures
    token += sum(product_flops(part, back) for part in decoder.children() if part is not decoder.layers)
    return LanguageModelFlops(token, pair, product_flops(head, back))


def view_flops(network: nn.Module, layers: Iterable[nn.Module], width: int, patches: int, tokens: int) -> int:
    """Return the FLOPs of a vision transformer for one view.

    Args:
        network: transformer with patch embeddings, `network.embeddings`, and `layers`.
        layers: its layers, in the order in which they run.
        width: width of the states.
        patches: number of patches of the view.
        tokens: number of tokens in the layers, including class and register tokens.
    """
    embeddings = network.get_submodule("embeddings")
    # Pixels need no gradient, and class and register tokens pass through no patch embedding.
    total, back = patches * product_flops(embeddings, back=False), has_trainable_weights(embeddings)
    for layer in layers:
        back = back or has_trainable_weights(layer)
        total += tokens * product_flops(layer, back) + tokens**2 * attention_flops(width, back)
    return total


def stack_flops(layers: Iterable[nn.Module], behind_trained: bool) -> int:
    """Return the FLOPs per position of consecutive layers."""
    total, back = 0, behind_trained
    for layer in layers:
        # Single layers and not whole blocks: the first trainable layer computes no gradient of its input.
        total += product_flops(layer, back)
        back = back or has_trainable_weights(layer)
    return total


def product_flops(network: nn.Module, back: bool) -> int:
    """Return the FLOPs of a network's linear layers and convolutions at one position.

    Args:
        network: any network.
        back: whether gradients pass through them to their inputs.
    """
    layers = (part for part in network.modules() if isinstance(part, _LAYERS))
    # Forward, gradient of the input, gradient of the weight: a multiplication and an addition per weight each.
    return sum(2 * _count_weights(part) * (1 + back + _has_trainable_weight(part)) for part in layers)


def attention_flops(width: int, back: bool) -> int:
    """Return the FLOPs of attention in one layer for a pair of positions: a score and a weighted value."""
    # Two products of 2 * width FLOPs forward; each has two gradients, of its two factors.
    return 4 * width * (1 + 2 * back)


def _has_trainable_weight(layer: nn.Module) -> bool:
    # A layer with a quantized weight has no parameter `weight`.
    return any(weight.requires_grad for name, weight in layer.named_parameters(recurse=False) if name == "weight")


def _count_weights(layer: nn.Linear | nn.Conv1d | nn.Conv2d) -> int:
    # Counted from the layer's settings, because a weight may be sharded over ranks.
    if isinstance(layer, nn.Linear):
        return layer.in_features * layer.out_features
    return layer.in_channels // layer.groups * layer.out_channels * math.prod(layer.kernel_size)


def _has_known_layers_only(network: nn.Module) -> bool:
    """Return whether each matrix belongs to a known layer. Mixtures of experts, which skip weights, have others."""
    known_types = (*_LAYERS, nn.Embedding)
    unknown = (part for part in network.modules() if not isinstance(part, known_types))
    return all(weight.ndim < 2 for part in unknown for weight in part.parameters(recurse=False))


def has_trainable_weights(network: nn.Module) -> bool:
    """Return whether any weight of a network is trainable."""
    return any(weight.requires_grad for weight in network.parameters())
