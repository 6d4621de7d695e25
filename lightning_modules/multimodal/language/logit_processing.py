"""Processes logits as language models do: some scale or cap the output layer's logits."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

_FACTORS = ("logit_scale", "lm_head_multiplier")
"""Keys of factors in the configs of transformers, whose models multiply logits by them: Cohere, Falcon-H1."""

_DIVISOR = "logits_scaling"
"""Key of a divisor of the logits: Granite."""

_CAP = "final_logit_softcapping"
"""Key of a limit, to which tanh caps the logits: Gemma 2 and later."""

_PROBE_MAX = 100.0
"""Largest logit of a probe. Caps are near 30 and hardly show far below them."""


def process_logits(scores: Tensor, config: "PretrainedConfig") -> Tensor:
    """Return the processed logits [..., V] of a model with this config, given the logits of its output layer."""
    for key in _FACTORS:
        if _is_set(config, key):
            scores = scores * getattr(config, key)
    if _is_set(config, _DIVISOR):
        scores = scores / getattr(config, _DIVISOR)
    if _is_set(config, _CAP):
        scores = torch.tanh(scores / getattr(config, _CAP)) * getattr(config, _CAP)
    return scores


def has_plain_logits(config: "PretrainedConfig") -> bool:
    """Return whether the model does not process its logits."""
    return not any(_is_set(config, key) for key in (*_FACTORS, _DIVISOR, _CAP))


@torch.no_grad()
def require_known_scores(network: "PreTrainedModel") -> None:
    """Check that `process_logits` gives the model's own logits of random states. The layers do not run.

    A model on the meta device is not checked.

    Raises:
        ValueError: the model processes its logits in an unknown way.
    """
    from transformers.modeling_outputs import MoeModelOutputWithPast

    # With the decoder replaced by fixed states, only the model's own processing of logits runs.
    layer, decoder = network.get_output_embeddings(), network.get_decoder()
    if layer.weight.is_meta:
        return
    # Lightning builds models with the accelerator as the default device; a CPU generator needs the CPU.
    draws = torch.Generator().manual_seed(0)
    states = torch.randn((1, 1, layer.weight.shape[1]), generator=draws, device="cpu").to(layer.weight)
    # Scaled so that the largest logit is _PROBE_MAX, where a cap shows.
    states *= _PROBE_MAX / layer(states).abs().max().clamp_min(torch.finfo(states.dtype).tiny)
    ours = process_logits(layer(states), network.config.get_text_config()).float()
    output = MoeModelOutputWithPast(last_hidden_state=states)
    output.cross_attentions = None  # some models read it, others read router logits
    decoder.forward = lambda *args, **options: output
    try:
        theirs = network(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=states.device), use_cache=False).logits
    finally:
        # Removes the attribute of the instance, so the method of the class is in force again.
        del decoder.forward
    # 2 % covers the rounding of bf16. Written with `not`, so that NaN fails as well.
    if not (theirs.float() - ours).abs().max() <= 0.02 * ours.abs().max():
        name, inner = network.config.model_type, network.config.get_text_config().model_type
        raise ValueError(
            f"language_model: a {name}{'' if inner == name else f' with a {inner}'} processes its logits in an unknown "
            "way, so its probabilities would be wrong; use another architecture"
        )


def _is_set(config: "PretrainedConfig", key: str) -> bool:
    return getattr(config, key, None) not in (None, 1)
