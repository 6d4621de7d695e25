"""Tests that compiled layers compute the same for any length, without a compilation for each length."""

import pytest
import torch

from datamodules.multimodal.batch import Images
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower
from tests.support.language.packed_rows import rows, trained

# Dynamo reads every tensor's gradient and filters the warning, but pytest resets the filters.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.mark.slow
@pytest.mark.parametrize("trainable, checkpointing", [("full", False), ("lora", True)])
def test_a_compiled_language_model_is_the_same(build, graphs, trainable, checkpointing):
    settings = {"trainable": trainable, "activation_checkpointing": checkpointing}
    plain, compiled = build(**settings), build(compile=True, **settings)
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    for lengths, width in (([9, 4], 14), ([7, 11, 5], 17), ([3, 6, 9, 2], 12)):
        batch = rows(lengths, width)
        expected, actual = trained(plain, *batch), trained(compiled, *batch)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
    assert len(graphs) <= 2, "not one for each layer or length"


def test_answers_are_written_as_without(build, graphs):
    prompts = torch.randn(2, 6, 32), torch.ones(2, 6, dtype=torch.bool)
    expected = build().generate(*prompts, max_new_tokens=5, end_ids=[0])
    assert build(compile=True).generate(*prompts, max_new_tokens=5, end_ids=[0]) == expected
    assert not graphs


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["none", "full"])
def test_a_compiled_tower_is_the_same(graphs, trainable):
    def tower(**settings):
        torch.manual_seed(1)
        config = {
            "model_type": "siglip_vision_model",
            "image_size": 16,
            "patch_size": 4,
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
        }
        chosen = VisionTowerSettings(config=config, trainable=trainable, **settings)
        return VisionTower(chosen, precision_of("32-true", True))

    plain, compiled = tower(), tower(compile=True)
    for views in (2, 5, 3):
        pixels = torch.randint(0, 256, (views, 3, 16, 16), dtype=torch.uint8)
        images = Images(pixels, torch.zeros(views, dtype=torch.int64), torch.ones(views, dtype=torch.int64))
        torch.testing.assert_close(compiled(images), plain(images), atol=1e-5, rtol=1e-5)
    assert len(graphs) <= 2
