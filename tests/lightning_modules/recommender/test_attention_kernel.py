"""Tests which attention kernel is used, and which is refused."""

import pytest
import torch

from lightning_modules.recommender import attention_kernel
from lightning_modules.recommender.attention_kernel import check_attention_kernel, set_attention_kernel
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


@pytest.mark.parametrize(
    ("attention", "device", "message"),
    [("hstu", "cuda", "attention hstu"), ("time_interval", "cpu", "the device is cpu")],
)
def test_a_kernel_that_cannot_be_used_is_refused(attention, device, message):
    check_attention_kernel("torch", attention, torch.device(device))
    with pytest.raises(ValueError, match=f"attention_kernel triton .*{message}.*use torch"):
        check_attention_kernel("triton", attention, torch.device(device))


def test_a_nondeterministic_kernel_is_refused_where_determinism_is_required(monkeypatch):
    monkeypatch.setattr(attention_kernel, "find_spec", lambda name: object())
    check_attention_kernel("triton", "time_interval", torch.device("cuda"))
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    with pytest.raises(ValueError, match="trainer.deterministic true"):
        check_attention_kernel("triton", "time_interval", torch.device("cuda"))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(attention_kernel, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install triton"):
        check_attention_kernel("triton", "time_interval", torch.device("cuda"))


def test_every_layer_of_an_encoder_gets_the_kernel():
    encoder = SequenceEncoder(5, 4, ArchitectureSettings(hidden_size=8, num_blocks=3, attention="time_interval"))
    set_attention_kernel(encoder, "triton")
    layers = [layer for layer in encoder.modules() if isinstance(layer, TimeIntervalAttention)]
    assert [layer.kernel for layer in layers] == ["triton"] * 3
