"""Tests that scores, likelihoods and answers equal transformers', also with scaled or capped logits."""

import pytest
import torch
from torch.nn import functional as F

from datamodules.multimodal.batch import IGNORE
from lightning_modules.multimodal.language.logit_processing import require_known_scores
from tests.lightning_modules.multimodal import conftest

SIZES = {**conftest.SIZES, "num_hidden_layers": 2, "initializer_range": 0.5}
CONFIGS = {
    "gemma2": {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "head_dim": 8},
    "gemma3_text": {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "head_dim": 8},
    "granite": {"logits_scaling": 8.0},
    "cohere": {"logit_scale": 0.25},
    "falcon_h1": {"lm_head_multiplier": 0.25, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
}
TOKENS = {"pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture(params=CONFIGS)
def model(request, build, monkeypatch):
    config = {"model_type": request.param, **SIZES, **TOKENS, **CONFIGS[request.param]}
    monkeypatch.setitem(conftest.CONFIGS, "altered", config)
    return build("altered", attention="eager").eval()  # as Gemma 2 wants it


def test_logits_equal_those_of_the_model(model):
    tokens = torch.randint(3, conftest.VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = model.causal_lm(input_ids=tokens, use_cache=False).logits
        positions = torch.arange(9).expand(2, 9)
        states = model.hidden_states(model.embed(tokens), positions)
        bare = model.causal_lm.get_output_embeddings()(states)
        torch.testing.assert_close(model.logits(states), theirs, atol=1e-5, rtol=1e-5)
        assert (bare - theirs).abs().max() > 0.1, "nothing is altered"
        labels = tokens.masked_fill(positions == 0, IGNORE)
        expected = F.cross_entropy(theirs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
        torch.testing.assert_close(model.loss(states, labels)[0], expected, atol=1e-4, rtol=1e-5)


def test_a_model_with_an_alteration_of_its_own_is_refused(build, monkeypatch):
    config = {"model_type": "hyperclovax", **SIZES, **TOKENS, "logits_scaling": 8.0}
    monkeypatch.setitem(conftest.CONFIGS, "hyperclovax", config)  # it multiplies where Granite divides
    with pytest.raises(ValueError, match="a hyperclovax processes its logits in an unknown way"):
        build("hyperclovax")


@pytest.mark.parametrize("kind", ["gpt2", "qwen3_moe", "opt"])
def test_other_architectures_are_taken(kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = AutoConfig.for_model(kind, vocab_size=40, **sizes, **TOKENS)
    network = AutoModelForCausalLM.from_config(config)
    require_known_scores(network)
    assert "forward" not in vars(network.get_decoder())
