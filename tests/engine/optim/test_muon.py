"""Compares Muon with its definition, torch's own Muon, and AdamW for all other weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from engine.optim.muon import Muon, newton_schulz


def gradients(weight, steps):
    return torch.randn((steps, *weight.shape), generator=torch.Generator().manual_seed(1))


@given(rows=st.integers(1, 40), columns=st.integers(1, 40), scale=st.floats(1e-6, 1e6), seed=st.integers(0, 9))
@settings(deadline=None)
def test_singular_values_become_about_1_and_directions_stay(rows, columns, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    left = torch.linalg.qr(torch.randn(rows, rows, generator=generator))[0][:, : min(rows, columns)]
    right = torch.linalg.qr(torch.randn(columns, columns, generator=generator))[0][: min(rows, columns)]
    values = torch.linspace(1, 0.1, min(rows, columns)) * scale
    turned = newton_schulz((left * values) @ right)
    found = left.T @ turned @ right.T
    assert found.diagonal().min() > 0.6
    assert found.diagonal().max() < 1.3
    torch.testing.assert_close(found, torch.diag(found.diagonal()), atol=2e-3, rtol=0)


def test_a_matrix_of_zeros_stays_zero():
    assert not newton_schulz(torch.zeros(3, 4)).any()


@pytest.mark.parametrize("shape", [(24, 40), (40, 24)])
def test_muon_equals_torchs_muon_up_to_bfloat16(shape):
    """Torch's Muon, with the same settings, computes in bfloat16."""
    ours, theirs = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.ones(shape))
    mine = Muon([{"params": [ours], "weight_decay": 0.1}], [ours], 1e-2, (0.9, 0.95))
    plain = torch.optim.Muon([theirs], lr=1e-2, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for gradient in gradients(ours, 4):
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        plain.step()
    moved = (theirs - 1).norm()
    assert (ours - theirs).norm() < 0.02 * moved


def test_other_parameters_are_updated_as_by_adamw():
    """Beside a hidden matrix. Gradients are kept, and a weight without a gradient does not change."""
    turned, ours, idle = (nn.Parameter(torch.ones(4, 4)) for _ in range(3))
    theirs = nn.Parameter(torch.ones(4, 4))
    mine = Muon([{"params": [turned, ours, idle], "weight_decay": 0.1}], [turned, idle], 1e-2, (0.9, 0.95))
    plain = torch.optim.AdamW([theirs], lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for gradient in gradients(ours, 3):
        turned.grad, ours.grad, theirs.grad = (gradient.clone() for _ in range(3))
        mine.step()
        plain.step()
        assert torch.equal(turned.grad, gradient)
    assert torch.equal(ours, theirs)
    assert not torch.equal(turned, theirs)
    assert torch.equal(idle, torch.ones(4, 4))
    assert set(mine.state[turned]) == {"step", "momentum_buffer"}
    assert not mine.state[idle]


def test_a_closure_is_called_with_gradients():
    weight = nn.Parameter(torch.eye(3))
    optimizer = Muon([{"params": [weight], "weight_decay": 0.0}], [weight], 0.1, (0.9, 0.95))

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert [optimizer.step(closure).item() for _ in range(2)][1] < 3
