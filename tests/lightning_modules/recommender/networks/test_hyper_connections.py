"""Tests hyper-connections against the formulas of the paper."""

import copy

import pytest
import torch

from lightning_modules.recommender.networks import sinkhorn as balancing
from lightning_modules.recommender.networks.hyper_connections import ManifoldHyperConnection, PlainResidual, diagnose
from lightning_modules.recommender.networks.sinkhorn import sinkhorn
from tests.support.recommender.plain_sinkhorn import plain_sinkhorn

B, L, N, C = 2, 3, 4, 8


def make(streams=N, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    connection = ManifoldHyperConnection(C, streams).to(dtype)
    function = torch.nn.Linear(C, C).to(dtype)
    return connection, function, torch.randn(B, L, streams, C, dtype=dtype)


def definition(connection, state, function):
    """Equations 6 to 9, written down position by position."""
    n, new = connection.streams, torch.empty_like(state)
    for b in range(B):
        for position in range(L):
            x = state[b, position]
            vector = x.flatten()
            normed = vector / vector.square().mean().sqrt()
            pre, post, residual = (normed @ connection.phi).split([n, n, n * n])
            b_pre, b_post, b_residual = connection.bias.split([n, n, n * n])
            pre = (connection.alpha[0] * pre + b_pre).sigmoid()
            post = 2 * (connection.alpha[1] * post + b_post).sigmoid()
            logits = (connection.alpha[2] * residual + b_residual).view(n, n)
            mixing = plain_sinkhorn(logits, connection.iterations)
            new[b, position] = mixing @ x + torch.outer(post, function(pre @ x))
    return new


def shaken(connection):
    """Large random coefficients, so that every part of the formula shows."""
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return connection


def test_hyper_connections_follow_the_formula_of_the_paper():
    connection, function, state = make(dtype=torch.float64)
    shaken(connection)
    torch.testing.assert_close(connection(state, function), definition(connection, state, function))


def test_one_stream_is_the_plain_residual_without_parameters():
    connection, function, state = make(streams=1)
    assert list(connection.parameters()) == []
    expected = PlainResidual()(state.squeeze(2), function)
    assert torch.equal(connection(state, function).squeeze(2), expected)


def test_at_the_start_the_mean_of_the_streams_is_nearly_the_plain_residual():
    connection, function, state = make()
    expected = PlainResidual()(state.mean(2), function)
    torch.testing.assert_close(connection(state, function).mean(2), expected, atol=0.01, rtol=0.01)
    with torch.no_grad():
        connection.alpha.zero_()
    torch.testing.assert_close(connection(state, function).mean(2), expected)


def test_the_streams_stay_apart_at_the_start():
    connection, _, state = make()
    after = connection(state, torch.zeros_like)
    assert after.std(2).mean() > 0.7 * state.std(2).mean()


def test_equal_streams_grow_apart():
    connection, function, state = make()
    equal = state[:, :, :1].repeat(1, 1, N, 1)
    assert connection(equal, function).std(2).mean() > 1e-5


@pytest.mark.parametrize("chunk", [2, 4096])
def test_sinkhorn_equals_the_plain_iteration_and_its_gradient(monkeypatch, chunk):
    monkeypatch.setattr(balancing, "_CHUNK", chunk)
    torch.manual_seed(0)
    logits = torch.randn(N, N, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(sinkhorn(logits, 20), plain_sinkhorn(logits, 20))
    assert torch.autograd.gradcheck(lambda x: sinkhorn(x, 3), logits)
    weight = torch.randn_like(logits)
    torch.testing.assert_close(
        torch.autograd.grad((sinkhorn(logits, 20) * weight).sum(), logits),
        torch.autograd.grad((plain_sinkhorn(logits, 20) * weight).sum(), logits),
    )


@pytest.mark.parametrize(("deviation", "tolerance"), [(1, 1e-3), (3, 0.1)])
def test_rows_and_columns_sum_to_one(deviation, tolerance):
    torch.manual_seed(0)
    balanced = sinkhorn(deviation * torch.randn(N, N, 200), 20)
    assert (balanced >= 0).all()
    torch.testing.assert_close(balanced.sum(1), torch.ones(N, 200))
    torch.testing.assert_close(balanced.sum(0), torch.ones(N, 200), atol=tolerance, rtol=0)


def test_sinkhorn_survives_extreme_logits():
    logits = torch.tensor([[1e4, 0.0], [-1e4, 300.0]]).unsqueeze(-1).requires_grad_()
    balanced = sinkhorn(logits, 20)
    balanced[0, 0].sum().backward()
    assert balanced.isfinite().all()
    assert logits.grad.isfinite().all()


def test_the_mixing_acts_on_the_output_and_has_a_gradient():
    connection, function, state = make()
    before = connection(state, function)
    (before * torch.randn_like(before)).sum().backward()
    mixing = slice(2 * N, None)
    assert connection.phi.grad[:, mixing].abs().max() > 1e-6
    assert connection.bias.grad[mixing].abs().max() > 1e-4
    with torch.no_grad():
        connection.bias[mixing] = torch.randn(N * N)
    assert (connection(state, function) - before).abs().max() > 0.1


def test_coefficients_are_float32_under_autocast():
    connection, _, state = make()
    connection.collect = True
    function = torch.nn.Linear(C, C)
    seen = []

    def observed(x):
        seen.append(function(x).dtype)
        return function(x)

    exact = connection(state, observed)
    wanted = connection.observed
    with torch.autocast("cpu", torch.bfloat16):
        actual = connection(state, observed)
    assert seen == [torch.float32, torch.bfloat16]
    assert all(part.dtype == torch.float32 for part in connection.observed.coefficients)
    assert all(torch.equal(a, b) for a, b in zip(connection.observed.coefficients, wanted.coefficients, strict=True))
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, exact, atol=0.02, rtol=0.02)


def test_parameters_may_be_of_half_precision():
    connection, function, state = make(dtype=torch.bfloat16)
    shaken(connection).collect = True
    new = connection(state, function)
    assert new.dtype == torch.bfloat16
    exact = copy.deepcopy(connection).float()
    expected = exact(state.float(), lambda x: function(x.bfloat16()))
    assert all(part.dtype == torch.float32 for part in connection.observed.coefficients)
    pairs = zip(connection.observed.coefficients, exact.observed.coefficients, strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert torch.equal(new, expected.bfloat16())
    new.float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in connection.parameters())


def test_the_diagnosis_equals_that_by_hand():
    (first, function, state), (second, _, _) = make(), make(seed=1)
    real = torch.tensor([True, True, False, True, False, False])
    assert diagnose([first], real) == {}
    mixings = []
    for connection in (first, second):
        shaken(connection).collect = True
        state = connection(state, function)
        mixings.append(connection.observed.coefficients.residual.permute(2, 0, 1))
    found = diagnose([first, second], real)
    product = mixings[1] @ mixings[0]
    gain = torch.maximum(product.sum(1).amax(1), product.sum(2).amax(1))[real].mean()
    torch.testing.assert_close(found["gain/1"], gain)
    torch.testing.assert_close(found["pre/0"], first.observed.coefficients.pre.T[real].mean())
    torch.testing.assert_close(found["post/1"], second.observed.coefficients.post.T[real].mean())
    assert 0 <= found["sum_error/0"] < 0.2
    assert 0.1 < found["stream_spread/0"] <= 1
    collapsed = state[:, :, :1].repeat(1, 1, N, 1)
    first(collapsed, function)
    assert diagnose([first], real)["stream_spread/0"] < 1e-6


@pytest.mark.parametrize("wrong", [{"streams": 0}, {"iterations": 0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match="must be at least 1"):
        ManifoldHyperConnection(C, **wrong)
