"""Enables activation checkpointing of models of transformers, whose releases name it differently."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def recompute_activations(network: "PreTrainedModel") -> None:
    """Keep only the inputs of each layer, and recompute its activations in the backward pass.

    transformers 5.23 renamed the method; the last release for Python 3.10 is 5.20.
    """
    enable = getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
    # Reentrant checkpointing computes no gradients where no input of a layer requires one, as behind frozen embeddings.
    enable({"use_reentrant": False})
