import torch

from engine.exact_mean import ExactMean, LossSum


def gradients(splits, reference):
    """Gradient of the mean of w * x over all x, computed in the given micro-batches."""
    weight = torch.nn.Parameter(torch.tensor(2.0))
    mean = ExactMean(reference)
    for values in splits:
        loss = (weight * torch.tensor(values)).square().sum()
        mean.add(LossSum(loss, len(values))).backward()
    return mean.finish([weight]), weight.grad


def test_micro_batches_of_different_sizes_weigh_by_their_terms():
    whole = gradients([[1.0, 2.0, 3.0, 4.0, 5.0]], reference=4)
    parts = gradients([[1.0, 2.0, 3.0, 4.0], [5.0]], reference=4)
    assert torch.allclose(whole[0], parts[0])
    assert torch.allclose(whole[1], parts[1])
    assert torch.allclose(whole[1], torch.tensor(2 * 2.0 * 55 / 5))


def test_the_reference_changes_no_digit():
    values = [[0.1, 0.7, 0.3], [0.9]]
    (loss, gradient), *others = [gradients(values, reference) for reference in (1, 3, 1000)]
    for other_loss, other_gradient in others:
        assert torch.equal(loss, other_loss)
        assert torch.equal(gradient, other_gradient)


def test_a_step_without_terms_has_a_zero_gradient():
    weight = torch.nn.Parameter(torch.ones(3))
    mean = ExactMean(8)
    mean.add(LossSum((weight * 0).sum(), 0)).backward()
    assert mean.finish([weight]) == 0
    assert torch.equal(weight.grad, torch.zeros(3))


def test_steps_do_not_mix():
    mean, weight = ExactMean(1), torch.nn.Parameter(torch.tensor(1.0))
    for _ in range(2):
        weight.grad = None
        mean.add(LossSum(weight * 6, 3)).backward()
        assert mean.finish([weight]) == 2
        assert weight.grad == 2
