"""Tests that a module that loads an export computes the same as the exported model."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from datamodules.multimodal.text.tokenizer import load_tokenizer
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.export.image_text_export import (
    GenerationSettings,
    choose_target,
    write_transformers_model,
)
from lightning_modules.multimodal.export.load_export import load_image_text, load_parts
from lightning_modules.multimodal.export.parts_export import export
from tests.support.families.image_text_exports import Computed, chat_item, noise, tiny_parts

POSITIONS = torch.arange(11).unsqueeze(0)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(None, ["what is the trend of cpu?", "it falls from 40 to 12."])


def trained(*networks: nn.Module) -> None:
    torch.manual_seed(6)
    with torch.no_grad():
        for parameter in (parameter for network in networks for parameter in network.eval().parameters()):
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)


@torch.no_grad()
def logits(model):
    return model.logits(model.hidden_states(model.embed(POSITIONS + 3), POSITIONS))


@pytest.mark.parametrize(
    "settings, merge",
    [
        ({"trainable": "lora"}, False),
        ({"trainable": "lora"}, True),
        ({"trainable": "lora", "quantize": "nf4"}, True),
        ({"trainable": "last_n_layers"}, False),
    ],
)
def test_exported_parts_load_into_another_module(build, pretrained, tokenizer, tmp_path, settings, merge):
    def module():
        model = build(pretrained, **settings)
        networks = {"projector": nn.Linear(3, 4), "encoder": nn.Linear(2, 3)}
        return SimpleNamespace(language_model=model, encoder=networks["encoder"], export_networks=lambda: networks)

    first, second = module(), module()
    trained(first.language_model, *first.export_networks().values())
    expected = logits(first.language_model)
    written = {"encoder": {"class": "Linear"}}
    tokens = tokenizer.tokenizer, tokenizer.end_of_turn
    export(tmp_path, first.language_model, *tokens, first.export_networks(), written, merge)
    second.language_model.eval()
    assert (logits(second.language_model) - expected).abs().max() > 0.01
    load_parts(second, tmp_path)
    torch.testing.assert_close(logits(second.language_model.eval()), expected, atol=1e-5, rtol=0)
    for name, network in first.export_networks().items():
        assert torch.equal(network.weight, second.export_networks()[name].weight)
    if settings == {"trainable": "lora"} and not merge:
        second.language_model = build(pretrained, trainable="none")
        with pytest.raises(ValueError, match="found adapters, and the run has trained none"):
            load_parts(second, tmp_path)
    second.encoder = nn.Conv1d(1, 1, 1)
    with pytest.raises(ValueError, match="found an export with Linear, expected Conv1d"):
        load_parts(second, tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"tower": "clip_vision_model"},
        {"tower": "siglip2_vision_model"},
        {"tiling": "llava_next", "max_tiles": 2},
        {"trainable": "lora"},
    ],
    ids=str,
)
def test_an_exported_llava_loads_into_another_module(build, tokenizer, tmp_path, settings):
    trainable = settings.pop("trainable", "full")

    def parts():
        model = build("llama", vocabulary=tokenizer.vocabulary_size, trainable=trainable).eval()
        return tiny_parts(tokenizer, **settings)._replace(language_model=model)

    def scores(of):
        item = chat_item(of, "<image>\nwhat is the trend ?", [noise(1, 40, 70)])
        return Computed(of, tokenizer, item).scores()

    first, second = parts(), parts()
    trained(first.tower, first.projector, first.language_model)
    if first.learned is not None:
        trained(first.learned)
    expected = scores(first)
    assert (scores(second) - expected).abs().max() > 0.01
    write_image_text(first, tokenizer, tmp_path)
    module = module_of(second)
    load_image_text(module, tmp_path)
    actual = second._replace(language_model=module.language_model.eval())
    torch.testing.assert_close(scores(actual), expected, atol=1e-5, rtol=0)


def test_another_image_text_model_is_refused(build, tokenizer, tmp_path):
    parts = tiny_parts(tokenizer)
    write_image_text(parts, tokenizer, tmp_path)
    other = parts._replace(projector=Projector(ProjectorSettings(layer_norm=False), 24, 16))
    with pytest.raises(ValueError, match="do not fit the run"):
        load_image_text(module_of(other), tmp_path)
    with pytest.raises(ValueError, match="found a LlavaForConditionalGeneration, expected a LlavaNext"):
        load_image_text(module_of(tiny_parts(tokenizer, "llava_next", 2)), tmp_path)
    with pytest.raises(ValueError, match="Idefics3ForConditionalGeneration are not read; give a checkpoint"):
        load_image_text(module_of(tiny_parts(tokenizer, "idefics3")), tmp_path)


def write_image_text(parts, tokenizer, folder):
    generation = GenerationSettings(tokenizer.end_of_turn, tokenizer.pad, 12)
    write_transformers_model(choose_target(parts.layout, parts.projector), parts, folder, generation)


def module_of(parts):
    return SimpleNamespace(
        encoder=parts.tower,
        projector=parts.projector,
        language_model=parts.language_model,
        image_layout=parts.layout,
        places=parts.learned,
    )
