"""Tests weights and optimizer state in few bits, with the kernels of bitsandbytes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.device.measures.reference import relative_error
from tests.support.device.optional_packages import needs
from tests.support.device.options import OVERLAYS, on, quiet
from tests.support.families.tiny_temporal import TINY_TEMPORAL

OPTIMIZERS = {"cpu": ["adamw_8bit"], "cuda": ["adamw_8bit", "paged_adamw_8bit"]}
NEAR_ADAMW = 0.05
"""Largest relative difference of the loss after a few steps from that of AdamW with its state in 32 bits."""

BITS = [
    6791415634537580429,
    -7449849191065823262,
    564047748032913331,
    6791415634537580429,
    -2382391135354742086,
    1825416697289574934,
    -8672485516089348512,
]
"""Hashes of the codes and scales that `quantized` gets, which no device and no version may change."""

PRODUCT = {"float32": 1e-5, "bfloat16": 2e-2}
"""Largest relative error of a product with a dequantized weight, beside float64."""


pytestmark = needs("bits")


@needs("language")
@pytest.mark.slow
def test_the_state_of_the_optimizer_is_kept_in_8_bits(device, workplace, record_property):
    wide = ["--model.init_args.language_model.config.hidden_size", "64"]  # matrices of 4,096 numbers, and more
    common = [*TINY_TEMPORAL, *wide, "--trainer.limit_val_batches", "0", *on(device, "bf16-mixed")]
    plain = workplace.run("fit", *common, *quiet(4), name="plain").series("train/loss")
    for name in OPTIMIZERS[device]:
        options = [*common, "--model.init_args.optimizer", name]
        run = workplace.run("fit", *options, *quiet(4), name=name)
        away = abs(run.series("train/loss")[4] / plain[4] - 1)
        record_property(f"{name}_away", away)
        assert away < NEAR_ADAMW
        assert "trained parameters in 8 bits" in run.output
        saved = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True, map_location="cpu")
        states = saved["optimizer_states"][0]["state"].values()
        assert any(value.dtype == torch.uint8 for state in states for value in _tensors(state))


def _tensors(content):
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, dict):
        for value in content.values():
            yield from _tensors(value)


@needs("language")
@pytest.mark.slow
def test_adapters_train_beside_weights_in_4_bits(device, workplace):
    options = [*TINY_TEMPORAL, *on(device), "--config", str(OVERLAYS / "qlora.yaml")]
    run = workplace.run("fit", *options, *quiet(3), "--trainer.limit_val_batches", "0", name="qlora")
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2, 3]
    assert all(0 < loss < 100 for loss in losses.values())


def test_quantized_weights_have_the_same_bits_on_each_device(device, workplace, record_property):
    """Their bits do not depend on the device, and products with them are those of the dequantized weight."""
    found = workplace.call(quantized, device)
    record_property("relative_errors", found["errors"])
    assert found["bits"] == BITS
    assert {name: error for name, error in found["errors"].items() if not error <= PRODUCT[name.split()[1]]} == {}


def quantized(device: str) -> dict[str, object]:
    """Return hashes of the bits of quantized layers, and the errors of products with them."""
    from engine.determinism.tensor_hash import hash_tensor
    from lightning_modules.multimodal.language.quantized_linear import QuantizedLinear

    draws = torch.Generator().manual_seed(0)
    plain = nn.Linear(192, 128)
    with torch.no_grad():
        plain.weight.copy_(torch.randn(128, 192, generator=draws))
        plain.bias.copy_(torch.randn(128, generator=draws))
    states = torch.randn(5, 192, generator=draws)
    bits, errors = [], {}
    for kind, double in (("nf4", True), ("nf4", False), ("int8", False)):
        layer = QuantizedLinear(plain, kind, double, torch.device(device)).to(device)
        bits += [hash_tensor(part).item() for part in layer.stored if part is not None]
        for dtype in (torch.float32, torch.bfloat16):
            states_on_device = states.to(device, dtype).clone().requires_grad_()
            result = layer(states_on_device)
            result.sum().backward()
            weight = layer.dequantized(dtype).double().cpu()
            exact = F.linear(
                states_on_device.detach().double().cpu(), weight, layer.bias.detach().to(dtype).double().cpu()
            )
            gradient = weight.sum(0).expand(5, -1)
            name = f"{kind}{'+' * double} {str(dtype).removeprefix('torch.')}"
            errors[name] = relative_error([result.detach().cpu(), states_on_device.grad.cpu()], [exact, gradient])
    return {"bits": bits, "errors": errors}
