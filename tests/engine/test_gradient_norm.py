import math

import pytest
import torch
from torch import nn

from engine.gradient_norm import gradient_norm


def parameters(*gradients):
    found = [nn.Parameter(torch.zeros(len(gradient))) for gradient in gradients]
    for parameter, gradient in zip(found, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return [*found, nn.Parameter(torch.zeros(2))]  # and one without a gradient


def test_the_norm_of_all_gradients_as_one_vector():
    assert gradient_norm(parameters([3.0], [0.0, 4.0])) == 5
    assert gradient_norm([nn.Parameter(torch.zeros(2))]) == 0


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_shows(broken):
    assert not gradient_norm(parameters([3.0], [0.0, broken])).isfinite()
