"""Tests flex attention of packed chats, which torch computes on a CPU without gradients only."""

import pytest
import torch

from lightning_modules.multimodal.language.kernels.flex_attention import cached_attention
from tests.lightning_modules.multimodal.conftest import CONFIGS
from tests.support.language.packed_rows import rows

ROWS = [([9, 4], 14), ([7, 11, 5], 17), ([80, 60], 150)]  # a block of a mask has 128 positions


@pytest.fixture
def uncompiled(monkeypatch):
    """Run the kernel as it is written: a compiler in C++ takes a minute. transformers keeps what it compiled."""
    from transformers.integrations.flex_attention import WrappedFlexAttention

    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(WrappedFlexAttention, "_instance", None)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.filterwarnings("ignore:_compile flag on create_block_mask", "ignore:flex_attention called without")
def test_states_of_packed_chats_equal_those_of_sdpa(build, uncompiled, kind):
    model = build(kind)
    for lengths, width in ROWS:
        tokens, labels, positions = rows(lengths, width)
        found = {}
        for name in ("sdpa", "flex_attention"):
            model.causal_lm.set_attn_implementation(name)
            with torch.no_grad():
                states = model.hidden_states(model.embed(tokens), positions)
                found[name] = states, model.loss(states, labels)[0]
                alone = model.hidden_states(model.embed(tokens), torch.arange(width).repeat(len(lengths), 1))
        torch.testing.assert_close(found["flex_attention"], found["sdpa"], atol=1e-5, rtol=1e-5)
        assert (alone - found["sdpa"][0]).abs().max() > 0.1, "the comparison cannot fail"


def test_without_cuda_a_model_with_flex_attention_has_sdpa(build):
    """As an evaluation of a GPU's training: the values are the same, and a CPU compiles nothing."""
    model = build(attention="flex_attention")
    assert model.settings.attention == model.causal_lm.config._attn_implementation == "sdpa"


def test_a_cache_is_read_with_sdpa(build):
    model = build()
    object.__setattr__(model.settings, "attention", "flex_attention")
    model.causal_lm.set_attn_implementation("flex_attention")
    config = model.causal_lm.get_decoder().config
    with pytest.raises(KeyError), cached_attention(model.causal_lm, model.settings):
        assert config._attn_implementation == "sdpa"
        raise KeyError
    assert config._attn_implementation == "flex_attention"
    tokens = torch.arange(4, 9).unsqueeze(0)
    answers = model.generate(model.embed(tokens), torch.ones_like(tokens, dtype=torch.bool), 3, [0])
    assert len(answers[0]) <= 3
    assert config._attn_implementation == "flex_attention"
