"""Tests gated residuals and SwiGLU against LiGR's formulas, in values and gradients."""

import pytest
import torch

from lightning_modules.recommender.networks.attention.standard import StandardAttention
from lightning_modules.recommender.networks.blocks import EncoderBlock, Sublayer, SwiGLU
from lightning_modules.recommender.networks.hyper_connections import ManifoldHyperConnection, PlainResidual

B, L, C, INNER, HEADS = 3, 6, 8, 12, 2


def make_block(pre=True, gated=True):
    torch.manual_seed(0)
    functions = StandardAttention(C, HEADS, 0.0), SwiGLU(C, INNER, 0.0)
    block = EncoderBlock(*(Sublayer(function, PlainResidual(), C, 0.0, pre, gated) for function in functions)).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # no norm or bias is as simple as it begins
    return block


def norm(x, weights):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights.weight + weights.bias


def attention(x, weights):
    """Softmax attention, position by position."""
    query, key, value = (x @ weights.projection.weight.T + weights.projection.bias).split(C, -1)
    rows = []
    for i in range(L):
        heads = []
        for part in torch.arange(C).split(C // HEADS):
            scores = (key[:, : i + 1, part] * query[:, i : i + 1, part]).sum(-1) / (C // HEADS) ** 0.5
            heads.append((scores.softmax(-1).unsqueeze(-1) * value[:, : i + 1, part]).sum(1))
        rows.append(torch.cat(heads, -1))
    return torch.stack(rows, 1) @ weights.output.weight.T + weights.output.bias


def swiglu(x, weights):
    inner = x @ weights.gate.weight.T
    return (inner / (1 + (-inner).exp()) * (x @ weights.inner.weight.T)) @ weights.outer.weight.T


def ligr(x, block):
    """x + f(norm(x)) * sigmoid(W x + b), with attention and then with SwiGLU."""
    for sublayer, function in ((block.attention, attention), (block.feed_forward, swiglu)):
        change = function(norm(x, sublayer.norm), sublayer.function)
        x = x + change / (1 + (-(x @ sublayer.gate.weight.T + sublayer.gate.bias)).exp())
    return x


def test_a_gated_block_with_swiglu_is_a_layer_of_ligr():
    block = make_block()
    x = torch.randn(B, L, C, dtype=torch.float64, requires_grad=True)
    actual, expected = block(x, None), ligr(x, block)
    torch.testing.assert_close(actual, expected)
    weight, inputs = torch.randn_like(actual), (x, *block.parameters())
    torch.testing.assert_close(
        torch.autograd.grad((actual * weight).sum(), inputs), torch.autograd.grad((expected * weight).sum(), inputs)
    )


def test_with_norm_post_the_gated_sum_is_normed():
    block = make_block(pre=False)
    x = torch.randn(B, L, C, dtype=torch.float64)
    sublayer = block.feed_forward
    gate = (x @ sublayer.gate.weight.T + sublayer.gate.bias).sigmoid()
    torch.testing.assert_close(sublayer(x), norm(x + gate * swiglu(x, sublayer.function), sublayer.norm))


def test_the_gate_of_the_last_positions_is_theirs():
    block, last = make_block(), torch.tensor([5, 0, 3])
    x = torch.randn(B, L, C, dtype=torch.float64)
    torch.testing.assert_close(block(x, None, last)[:, 0], block(x, None)[torch.arange(B), last])


def test_a_gate_near_1_equals_a_block_without_a_gate():
    block, x = make_block(), torch.randn(B, L, C, dtype=torch.float64)
    for sublayer in (block.attention, block.feed_forward):
        torch.nn.init.zeros_(sublayer.gate.weight)
        torch.nn.init.constant_(sublayer.gate.bias, 50.0)
    plain = make_block(gated=False)
    plain.load_state_dict({name: block.state_dict()[name] for name in plain.state_dict()})
    torch.testing.assert_close(block(x, None), plain(x, None))


def test_with_hyper_connections_the_gate_reads_what_the_sublayer_reads():
    torch.manual_seed(0)
    sublayer = Sublayer(SwiGLU(C, INNER, 0.0), ManifoldHyperConnection(C, 3), C, 0.0, True, True)
    for parameter in sublayer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    read = []
    sublayer.norm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    state = torch.randn(B, L, 3, C)

    def change(x):
        return sublayer.function(sublayer.norm(x)) * sublayer.gate(x).sigmoid()

    expected = sublayer.residual(state, change)
    torch.testing.assert_close(sublayer(state), expected)
    assert len(read) == 2
    assert read[0].shape == (B, L, C)
    assert torch.equal(*read)


@pytest.mark.parametrize("inner", [C, 3 * C])
def test_swiglu_has_three_matrices_and_no_bias(inner):
    assert sorted(tuple(weight.shape) for weight in SwiGLU(C, inner, 0.0).parameters()) == sorted(
        [(inner, C), (inner, C), (C, inner)]
    )
