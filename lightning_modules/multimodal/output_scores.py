"""What a language model makes of its output layer's scores before they are probabilities: some scale or cap them."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_FACTORS = ("logit_scale", "lm_head_multiplier")  # Cohere; Falcon-H1
_DIVISOR, _CAP = "logits_scaling", "final_logit_softcapping"  # Granite; Gemma 2 and later

_PROBED_UP_TO = 100.0
"""The largest score of a probe: caps are near 30, and far below them they can hardly be seen."""


def final_scores(scores: Tensor, config: "PretrainedConfig") -> Tensor:
    """[..., V] of the output layer -> [..., V], as a model of this config computes them."""
    for key in _FACTORS:
        if _set(config, key):
            scores = scores * getattr(config, key)
    if _set(config, _DIVISOR):
        scores = scores / getattr(config, _DIVISOR)
    if _set(config, _CAP):
        scores = torch.tanh(scores / getattr(config, _CAP)) * getattr(config, _CAP)
    return scores


def plain_scores(config: "PretrainedConfig") -> bool:
    """Whether the output layer's scores are the model's."""
    return not any(_set(config, key) for key in (*_FACTORS, _DIVISOR, _CAP))


@torch.no_grad()
def require_known_scores(network: "PreTrainedModel") -> None:
    """Compares with what the model itself makes of states; its layers are not computed. Not on the meta device, where
    there is nothing to compare.

    Raises:
        ValueError: it alters its scores in a way that is not known here.
    """
    from transformers.modeling_outputs import MoeModelOutputWithPast

    layer, decoder = network.get_output_embeddings(), network.get_decoder()
    if layer.weight.is_meta:
        return
    # Lightning builds models with the accelerator as the default device, which a generator of the CPU would not fit.
    draws = torch.Generator().manual_seed(0)
    states = torch.randn((1, 1, layer.weight.shape[1]), generator=draws, device="cpu").to(layer.weight)
    states *= _PROBED_UP_TO / layer(states).abs().max().clamp_min(torch.finfo(states.dtype).tiny)
    ours = final_scores(layer(states), network.config).float()
    output = MoeModelOutputWithPast(last_hidden_state=states)
    output.cross_attentions = None  # some look for it, others for routers' scores
    decoder.forward = lambda *args, **options: output
    try:
        theirs = network(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=states.device), use_cache=False).logits
    finally:
        del decoder.forward
    if not (theirs.float() - ours).abs().max() <= 0.02 * ours.abs().max():
        raise ValueError(
            f"language_model: a {network.config.model_type} alters the scores of its output layer in a way that is "
            "not known here, so that its probabilities would be wrong; use another architecture"
        )


def _set(config: "PretrainedConfig", key: str) -> bool:
    return getattr(config, key, None) not in (None, 1)
