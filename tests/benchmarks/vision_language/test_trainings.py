"""Tests the measured trainings: the plain loop trains, and torch.compile reaches both parts of ours."""

import pytest
import torch

from benchmarks.engine.interleaving import Gate
from benchmarks.vision_language import trainings
from benchmarks.vision_language.models import TINY, Layout, built, model_settings
from benchmarks.vision_language.plain_llava import PlainLlava
from lightning_modules.vision_language.module import VisionLanguageModel
from tests.support.fake_trainer import fake_trainer


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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_plain_loop_has_the_loader_of_a_training(device):
    _, data = built(TINY, Layout(packed=True), meta=True)
    loader = trainings.loader_of(data, torch.device(device))
    data.trainer = fake_trainer(device=device)
    engines = data._loader_factory.train_loader(data.train_set, data._order)
    assert loader.pin_memory == engines.pin_memory == (device == "cuda")


def test_settings_to_compile_reach_both_parts():
    model = VisionLanguageModel(**model_settings(TINY, compiled=True))
    assert model.language_model_settings.compile
    assert model.modality.settings.compile
