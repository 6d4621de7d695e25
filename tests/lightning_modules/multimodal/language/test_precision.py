"""Tests the dtypes of a language model's weights under each precision of Lightning."""

import pytest
import torch
from torch import nn

from lightning_modules.multimodal.language.precision import Precision, device_has_bf16, precision_of, set_dtypes

BF16, FP32, FP64 = torch.bfloat16, torch.float32, torch.float64


@pytest.mark.parametrize(
    ("precision", "formats"),
    [
        ("32-true", (FP32, FP32, None)),
        (32, (FP32, FP32, None)),
        ("64-true", (FP64, FP64, None)),
        ("bf16-mixed", (BF16, FP32, BF16)),
        ("bf16", (BF16, FP32, BF16)),
        ("16-mixed", (BF16, FP32, BF16)),
        ("bf16-true", (BF16, BF16, None)),
    ],
)
def test_each_precision_has_its_number_formats(precision, formats):
    assert precision_of(precision, has_bf16=True) == Precision(*formats)


def test_precisions_that_overflow_or_lack_hardware_are_refused():
    with pytest.raises(ValueError, match="16-mixed.*no bf16.*Qwen2.5 overflows"):
        precision_of("16-mixed", has_bf16=False)
    with pytest.raises(ValueError, match="bf16-mixed, but this device has no bf16"):
        precision_of("bf16-mixed", has_bf16=False)
    with pytest.raises(ValueError, match="16-true.*fp16 alone overflows"):
        precision_of("16-true", has_bf16=True)
    assert precision_of("32-true", has_bf16=False).frozen == FP32


def test_a_cpu_has_bf16():
    assert device_has_bf16(torch.device("cpu"))


def test_tied_weights_stay_tied():
    table = nn.Embedding(4, 2)
    output = nn.Linear(2, 4, bias=False)
    output.weight = table.weight
    network = nn.ModuleList([table, output, nn.Linear(2, 2)]).requires_grad_(False)
    network[2].requires_grad_(True)
    set_dtypes(network, Precision(BF16, FP32, BF16))
    assert network[0].weight is network[1].weight
    assert [p.dtype for p in network.parameters()] == [BF16, FP32, FP32]
