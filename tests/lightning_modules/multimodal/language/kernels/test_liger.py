"""Tests Liger's cross-entropy, interpreted by Triton, against torch's, and when a model uses it."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
import torch

from lightning_modules.multimodal.language import language_model
from lightning_modules.multimodal.language.language_model import LanguageModel
from tests.lightning_modules.multimodal.language.kernels import __name__ as package
from tests.support.language.packed_rows import rows, trained


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="no wheel of Triton for this system")
def test_interpreted_kernels_equal_torch():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", f"{package}.programs"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout.splitlines()[-1])
    assert [len(of_case) for of_case in differences.values()] == [3, 3, 4, 2, 3]
    assert {case: own for case, own in differences.items() if not max(own.values()) < 1e-5} == {}


def test_the_loss_is_the_same_and_only_trainings_on_cuda_fuse(build, monkeypatch):
    """With torch instead of the kernel: what is passed to it, and that terms and counts are those of the plain loss."""
    calls = []

    def plain(layer, states, targets, reduction):
        calls.append(reduction)
        return torch.nn.functional.cross_entropy(layer(states), targets, reduction=reduction)

    monkeypatch.setattr(language_model, "liger_cross_entropy", plain)
    model, batch = build(loss_kernel="liger"), rows([9, 4], 14)
    expected, gradients = trained(model, *batch)
    assert calls == [], "a CPU has no kernel"
    monkeypatch.setattr(LanguageModel, "_fuses", lambda *arguments: torch.is_grad_enabled())
    actual, own = trained(model, *batch)
    states = model.hidden_states(model.embed(batch[0]), batch[2])
    terms = model.terms(states, batch[1])
    assert calls == ["sum", "none"]
    with torch.no_grad():
        torch.testing.assert_close(model.terms(states, batch[1]), terms)
    assert calls == ["sum", "none"], "an evaluation needs no gradients"
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(own, gradients)
