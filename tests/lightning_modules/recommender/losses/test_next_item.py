"""Tests the losses of the next item against their formulas, with gradients and half precision."""

import math

import pytest
import torch
from torch.nn import functional as F

from datamodules.recommender.batch import SampledItems
from lightning_modules.recommender.losses import linear_cross_entropy as fused
from lightning_modules.recommender.losses.next_item import (
    LOSSES,
    bce,
    check_other_negatives,
    cross_entropy,
    gbce,
    sampled_softmax,
)

B, L, C, V, K = 3, 5, 8, 11, 4


def make(dtype=torch.float64, shared=False):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(B, L, C, dtype=dtype, generator=generator, requires_grad=True)
    weight = torch.randn(V, C, dtype=dtype, generator=generator, requires_grad=True)
    targets = torch.randint(1, V + 1, (B, L), generator=generator)
    targets[0, 3:] = 0
    targets[2] = 0
    negatives = torch.randint(1, V + 1, (B, 1 if shared else L, K), generator=generator)
    real = targets > 0
    return states, weight, targets, negatives * (real[:, :1] if shared else real).unsqueeze(-1)  # 0 in padding


def plain_cross_entropy(states, weight, targets):
    return F.cross_entropy(states.flatten(0, 1) @ weight.T, targets.flatten() - 1, reduction="sum", ignore_index=-1)


def gradients(loss, *inputs):
    return torch.autograd.grad(loss, inputs, retain_graph=True)


@pytest.fixture(params=[2, 128])
def chunk_rows(request, monkeypatch):
    monkeypatch.setattr(fused, "_SMALLEST_CHUNK", request.param)
    monkeypatch.setattr(fused, "_CPU_CHUNK", 1)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_cross_entropy_equals_torchs(chunk_rows, dtype, tolerance):
    states, weight, targets, _ = make(dtype)
    loss, expected = cross_entropy(states, weight, targets), plain_cross_entropy(states, weight, targets)
    torch.testing.assert_close(loss, expected, atol=tolerance, rtol=tolerance)
    actual, wanted = gradients(3 * loss, states, weight), gradients(3 * expected, states, weight)
    torch.testing.assert_close(actual, wanted, atol=tolerance, rtol=tolerance)


def test_cross_entropy_passes_gradcheck(chunk_rows):
    states, weight, targets, _ = make()
    assert torch.autograd.gradcheck(lambda s, w: cross_entropy(s, w, targets), (states, weight))


def test_cross_entropy_survives_extreme_logits():
    states, weight, targets, _ = make(torch.float32)
    states, weight = (1e3 * states).detach().requires_grad_(), weight.detach().requires_grad_()
    loss, expected = cross_entropy(states, weight, targets), plain_cross_entropy(states, weight, targets)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients(loss, weight), gradients(expected, weight))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast_changes_no_bit(name, shared, half):
    states, weight, targets, negatives = make(torch.float32, shared)
    expected = LOSSES[name](states, weight, targets, negatives)
    wanted = gradients(expected, states, weight)
    with torch.autocast("cpu", half):
        loss = LOSSES[name](states, weight, targets, negatives)
    assert torch.equal(loss, expected)
    assert all(torch.equal(*pair) for pair in zip(gradients(loss, states, weight), wanted, strict=True))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_inputs_are_computed_in_float32(name, shared, half):
    states, weight, targets, negatives = make(torch.float32, shared)
    states, weight = (x.detach().to(half).requires_grad_() for x in (states, weight))
    exact = [x.detach().float().requires_grad_() for x in (states, weight)]
    loss, expected = (LOSSES[name](*pair, targets, negatives) for pair in ((states, weight), exact))
    assert loss.dtype == torch.float32
    assert torch.equal(loss, expected)
    for actual, wanted in zip(gradients(loss, states, weight), gradients(expected, *exact), strict=True):
        assert torch.equal(actual, wanted.to(half))  # rounded once, at the end


def test_small_gradients_of_cross_entropy_survive_float16():
    # exp(-20) = 2e-9 is nothing in float16, whose smallest number is 6e-8; times the scale of the loss it is something.
    states, weight = torch.zeros(1, 1, 2), torch.tensor([[1.0, 0.0], [0.0, 20.0]])
    states[..., 1] = -1.0
    states, weight = (x.half().requires_grad_() for x in (states, weight))
    with torch.autocast("cpu", torch.float16):
        loss = cross_entropy(states, weight, torch.ones(1, 1, dtype=torch.int64))
    (gradient,) = gradients(2.0**16 * loss, weight)
    torch.testing.assert_close(gradient[1, 1].item(), -(2.0**16) * math.exp(-20), rtol=1e-2, atol=0)


def test_without_gradients_none_are_computed(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "addmm_", lambda *_: pytest.fail("a gradient was computed"))
    states, weight, targets, _ = make()
    with torch.no_grad():
        loss = cross_entropy(states, weight, targets)
    torch.testing.assert_close(loss, plain_cross_entropy(states, weight, targets).detach())


@pytest.mark.parametrize("shared", [False, True])
def test_sampled_losses_equal_their_formulas(shared):
    states, weight, targets, negatives = make(shared=shared)
    every = negatives.expand(B, L, K)
    actual = {name: LOSSES[name](states, weight, targets, negatives) for name in ("sampled_softmax", "bce", "gbce")}
    expected = dict.fromkeys(actual, torch.zeros((), dtype=torch.float64))
    alpha = K / (V - 1)
    beta = alpha * (0.75 * (1 - 1 / alpha) + 1 / alpha)
    for b in range(B):
        for position in range(L):
            target = int(targets[b, position])
            if target == 0:
                continue
            scores = weight @ states[b, position]
            positive = scores[target - 1]
            negative = scores[every[b, position] - 1]
            kept = torch.stack([positive, *(scores[int(n) - 1] for n in every[b, position] if n != target)])
            terms = {
                "sampled_softmax": -torch.log_softmax(kept, 0)[0],
                "bce": -torch.sigmoid(positive).log() - (1 - torch.sigmoid(negative)).log().mean(),
                "gbce": (-(torch.sigmoid(positive) ** beta).log() - (1 - torch.sigmoid(negative)).log().sum())
                / (K + 1),
            }
            expected = {name: expected[name] + term for name, term in terms.items()}
    for name, loss in actual.items():
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, expected[name].float(), rtol=1e-5, atol=1e-5)
        wanted = gradients(expected[name], states, weight)
        torch.testing.assert_close(gradients(loss, states, weight), wanted, rtol=1e-5, atol=1e-5)


def test_gbce_of_calibration_zero_is_the_mean_of_binary_cross_entropies():
    states, weight, targets, negatives = make()
    one = negatives[..., :1]
    expected = bce(states, weight, targets, one) / 2
    torch.testing.assert_close(gbce(states, weight, targets, one, calibration=0.0), expected)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("calibration", [0.0, 0.75, 1.0])
def test_gbce_is_that_of_the_papers_code(shared, calibration):
    """gSASRec's code raises the positive probability to beta, turns it into a logit and averages over K + 1 logits."""
    states, weight, targets, negatives = make(shared=shared)
    real = targets > 0
    scores = states @ weight.T
    positive = scores.gather(-1, (targets - 1).clamp_min(0).unsqueeze(-1))
    negative = scores.gather(-1, (negatives - 1).clamp_min(0).expand(B, L, K))
    alpha = K / (V - 1)
    beta = alpha * ((1 - 1 / alpha) * calibration + 1 / alpha)
    powered = torch.sigmoid(positive).clamp(1e-10, 1 - 1e-10) ** beta
    logits = torch.cat(((powered / (1 - powered)).log(), negative), -1)
    truth = torch.zeros_like(logits)
    truth[..., 0] = 1
    each = F.binary_cross_entropy_with_logits(logits, truth, reduction="none").mean(-1)
    expected = each[real].sum()
    loss = gbce(states, weight, targets, negatives, calibration=calibration)
    torch.testing.assert_close(loss, expected.float(), rtol=1e-5, atol=1e-5)
    wanted = gradients(expected, states, weight)
    torch.testing.assert_close(gradients(loss, states, weight), wanted, rtol=1e-5, atol=1e-5)


def test_the_gradient_of_gbce_does_not_grow_with_the_number_of_negatives():
    """The sum over the logits of 256 negatives has a gradient of norm 12 to 20, which clipping at 1 cuts every time."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(64, C, generator=generator)
    weight = (0.1 * torch.randn(1000, C, generator=generator)).requires_grad_()
    targets = torch.randint(1, 1001, (64,), generator=generator)
    norms = []
    for number in (4, 256):
        negatives = torch.randint(1, 1001, (64, number), generator=generator)
        (gradient,) = gradients(gbce(states, weight, targets, negatives) / 64, weight)
        norms.append(gradient.norm().item())
    assert norms[1] < norms[0] < 1


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shared", [False, True])
def test_padding_weighs_nothing_even_when_it_is_not_finite(name, shared):
    states, weight, targets, negatives = make(shared=shared)
    expected = LOSSES[name](states, weight, targets, negatives)
    spoilt = torch.where((targets > 0).unsqueeze(-1), states, torch.inf).detach()
    torch.testing.assert_close(LOSSES[name](spoilt, weight, targets, negatives), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_of_fillers_costs_nothing_and_still_has_gradients(name):
    states, weight, targets, negatives = make()
    loss = LOSSES[name](states, weight, torch.zeros_like(targets), negatives)
    assert loss.item() == 0
    assert all((gradient == 0).all() for gradient in gradients(loss, states, weight))


@pytest.mark.parametrize("loss", [sampled_softmax, bce, gbce])
def test_missing_negatives_are_named(loss):
    states, weight, targets, negatives = make()
    with pytest.raises(ValueError, match="needs negatives"):
        loss(states, weight, targets, negatives[..., :0])


@pytest.mark.parametrize("number", [0, K])
@pytest.mark.parametrize("shared", [False, True])
def test_corrected_sampled_softmax_equals_its_formula(number, shared):
    """Values and gradients, with negatives of the batch, some of which a row has."""
    states, weight, targets, negatives = make(torch.float32, shared)
    negatives = negatives[..., :number]
    generator = torch.Generator().manual_seed(1)
    of_batch = torch.randint(1, V + 1, (6,), generator=generator)
    log_target, log_own, log_batch = (
        torch.randn(shape, generator=generator) for shape in ((B, L), negatives.shape, (B, 6))
    )
    log_batch[0, 2] = log_batch[1, 4] = torch.inf
    sampled = SampledItems(of_batch, log_target, log_own, log_batch)
    loss = sampled_softmax(states, weight, targets, negatives, sampled)
    exact_states, exact_weight = (x.detach().double().requires_grad_() for x in (states, weight))
    expected = torch.zeros((), dtype=torch.float64)
    for b in range(B):
        for position in range(L):
            target = int(targets[b, position])
            if not target:
                continue
            scores = exact_weight @ exact_states[b, position]
            index = 0 if shared else position
            terms = [scores[target - 1] - log_target[b, position]]
            own = zip(negatives[b, index].tolist(), log_own[b, index], strict=True)
            terms += [scores[item - 1] - log for item, log in own if item != target]
            others = zip(of_batch.tolist(), log_batch[b], strict=True)
            terms += [scores[item - 1] - log for item, log in others if log.isfinite()]
            expected = expected + torch.stack(terms).logsumexp(0) - terms[0]
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-5)
    actual, wanted = gradients(loss, states, weight), gradients(expected, exact_states, exact_weight)
    torch.testing.assert_close([x.double() for x in actual], list(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("loss", "reason"), [("cross_entropy", "all items"), ("bce", "no correction"), ("gbce", "uniform negatives")]
)
def test_losses_that_assume_uniform_negatives_refuse_others(loss, reason):
    with pytest.raises(ValueError, match=f"^negatives mixed with model.init_args.loss {loss}, which .*{reason}"):
        check_other_negatives(loss, "negatives mixed")
    check_other_negatives(loss, "")
    check_other_negatives("sampled_softmax", "negatives mixed")
