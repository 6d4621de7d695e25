"""Compares Liger's cross-entropy with torch's, without a GPU: TRITON_INTERPRET=1 python -m ...programs. Prints JSON."""

import json

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_modules.multimodal.language.kernels.liger import liger_cross_entropy

CASES = {
    "sum": {"reduction": "sum", "bias": False, "frozen": False, "tokens": 21},
    "terms": {"reduction": "none", "bias": False, "frozen": False, "tokens": 21},
    "bias": {"reduction": "none", "bias": True, "frozen": False, "tokens": 3},
    "frozen": {"reduction": "sum", "bias": False, "frozen": True, "tokens": 5},
    "none": {"reduction": "sum", "bias": False, "frozen": False, "tokens": 0},
}


def compare() -> dict[str, dict[str, float]]:
    """Return {case: {tensor: largest difference to torch}}, of the result and of the gradients."""
    return {name: _differences(**case) for name, case in CASES.items()}


def _differences(reduction: str, bias: bool, frozen: bool, tokens: int) -> dict[str, float]:
    draws = torch.Generator().manual_seed(tokens)
    layer = torch.nn.Linear(16, 50, bias=bias)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.randn(weight.shape, generator=draws))
    layer.requires_grad_(not frozen)
    states = torch.randn(tokens, 16, generator=draws, requires_grad=True)
    targets = torch.randint(50, (tokens,), generator=draws)
    trained = [states, *(weight for weight in layer.parameters() if weight.requires_grad)]
    scale = torch.rand(() if reduction == "sum" else (tokens,), generator=draws)

    def outcome(result: Tensor) -> list[Tensor]:
        return [result, *torch.autograd.grad((result * scale).sum(), trained)]

    ours = outcome(liger_cross_entropy(layer, states, targets, reduction))
    plain = outcome(F.cross_entropy(layer(states), targets, reduction=reduction))
    names = ["result", "states", "weight", "bias"]
    pairs = zip(ours, plain, strict=True)
    relative = [((own - other).abs().sum() / other.abs().sum().clamp_min(1)).item() for own, other in pairs]
    return dict(zip(names, relative, strict=False))


if __name__ == "__main__":
    print(json.dumps(compare()))
