"""Compares compiled layers and kernels with the plain layers: loss and gradients of packed chats."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from benchmarks.device.measures.reference import relative_error
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY
from tests.support.device.optional_packages import needs
from tests.support.language.packed_rows import rows, trained

ROWS = [([9, 4], 14), ([7, 11, 5], 17), ([3, 6, 9, 2], 12)]  # chats per row, of other widths
TOLERANCE = {"32-true": (1e-5, 1e-3), "bf16-mixed": (2e-2, 2e-1)}
"""Largest relative errors of the loss and of the gradients."""

pytestmark = needs("language")


@pytest.mark.slow
def test_compiled_layers_are_the_same(device, workplace, record_property):
    """A GPU compiles with Triton; on a CPU, where C++ takes long, the graphs run as torch has traced them."""
    for precision, errors in workplace.call(errors_of_compiled, device, limit=170).items():
        check(errors, precision, record_property)


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting, value, package",
    [
        ("attention", "sdpa", None),
        pytest.param("attention", "flash_attention_2", "flash_attn", marks=pytest.mark.no_cpu_form),
        # On a CPU, tests of language/kernels compute its values.
        pytest.param("attention", "flex_attention", None, marks=pytest.mark.no_cpu_form),
        # On a CPU, they interpret it.
        pytest.param("loss_kernel", "liger", "liger_kernel", marks=pytest.mark.no_cpu_form),
    ],
)
def test_kernels_of_packed_chats_equal_the_plain_ones(device, workplace, record_property, setting, value, package):
    """Beside eager attention and torch's loss in float32 on the CPU: a chat attends to no other one."""
    if package is not None:
        pytest.importorskip(package)
    check(workplace.call(errors_of_kernel, device, setting, value), "bf16-mixed", record_property)


def check(errors: list[tuple[float, float]], precision: str, record_property: Callable[[str, Any], None]) -> None:
    record_property(f"relative_errors_{precision}", errors)
    value, gradient = TOLERANCE[precision]
    assert len(errors) == len(ROWS)
    assert [pair for pair in errors if not (pair[0] <= value and pair[1] <= gradient)] == []


def errors_of_compiled(device: str) -> dict[str, list[tuple[float, float]]]:
    """Return {precision: (error of the loss, of the gradients) of each batch}, beside layers that are not compiled."""
    if device == "cpu":
        torch.compile = partial(torch.compile, backend="aot_eager")  # of this process alone
    return {
        precision: _errors(_model(device, precision, compile=True), _model(device, precision))
        for precision in (TOLERANCE if device == "cuda" else ["32-true"])
    }


def errors_of_kernel(device: str, setting: str, value: str) -> list[tuple[float, float]]:
    """Return the errors beside eager attention and torch's loss in float32 on the CPU."""
    return _errors(_model(device, "bf16-mixed", **{setting: value}), _model("cpu", "32-true", attention="eager"))


def _model(device: str, precision: str, **settings: Any) -> LanguageModel:
    torch.manual_seed(1)
    # Heads of 32, as kernels of flash attention need a multiple of 8.
    sizes = {**CONFIGS["qwen2"], "hidden_size": 128, "intermediate_size": 128}
    chosen = LanguageModelSettings(config=sizes, **settings)
    model = LanguageModel(chosen, VOCABULARY, precision_of(precision, has_bf16=True), torch.device(device))
    return model.to(device)


def _errors(ours: LanguageModel, reference: LanguageModel) -> list[tuple[float, float]]:
    errors = []
    for lengths, width in ROWS:
        batch = rows(lengths, width)
        (loss, gradients), (exact, expected) = (
            trained(model, *(part.to(_device(model)) for part in batch)) for model in (ours, reference)
        )
        pairs = [(gradients[name].cpu(), expected[name].cpu()) for name in expected]
        actual = relative_error(*map(list, zip(*pairs, strict=True)))
        errors.append((relative_error([loss.cpu()], [exact.cpu()]), actual))
    return errors


def _device(model: LanguageModel) -> torch.device:
    return next(model.parameters()).device
