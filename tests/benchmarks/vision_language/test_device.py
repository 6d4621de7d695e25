"""The benchmark of a GPU runs on a CPU with a tiny model, and both of its loops train the same model."""

import pytest
import torch
from rich.console import Console

from benchmarks.engine.turns import Gate
from benchmarks.vision_language import device, trainings
from benchmarks.vision_language.models import TINY, Layout, model_of
from benchmarks.vision_language.plain_llava import PlainLlava


def test_turns_of_both_loops(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = device.figures(repeats=1, peak_tflops=1.0, steps=2)
    assert [side["name"] for side in found["sides"]] == ["plain torch loop", "Lockstep"]
    console = Console(width=140, record=True)
    console.print(device.table(found))
    rate = found["sides"][1]["flops_per_second"][0]
    assert rate > 0 and f"{rate / 1e12:.1%}" in console.export_text()


def test_the_plain_loop_learns(monkeypatch):
    """Its loss falls: the gradients reach what it trains."""
    losses = []

    class Enough(Exception):
        pass

    class Counted(Gate):
        def step(self):
            if len(losses) == 12:
                raise Enough

    real = PlainLlava.forward

    def kept(*arguments):
        found = real(*arguments)
        losses.append(float(found["loss"].detach()))
        return found

    monkeypatch.setattr(PlainLlava, "forward", kept)
    with pytest.raises(Enough):
        trainings.plain(Counted(), sizes=TINY, layout=Layout(packed=True))
    assert losses[-1] < losses[0]


def test_settings_to_compile_reach_both_parts():
    model = model_of(TINY, compiled=True)
    assert model.language_model_settings.compile and model.vision_tower_settings.compile
