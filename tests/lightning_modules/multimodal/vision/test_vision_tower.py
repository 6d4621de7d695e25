"""Tests vision towers of all kinds: a feature per patch, and gradients for the trained layers only."""

import json

import numpy as np
import pytest
import torch

from datamodules.multimodal.batch import Images
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower, tower_background, tower_shape

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
DINO = {**{key: size for key, size in SIZES.items() if key != "intermediate_size"}, "mlp_ratio": 2}
SQUARE = {"image_size": 24, "patch_size": 8}
KINDS = {
    "siglip_vision_model": {**SIZES, **SQUARE},
    "siglip2_vision_model": {**SIZES, "num_patches": 9, "patch_size": 8},
    "clip_vision_model": {**SIZES, **SQUARE},
    "dinov2": {**DINO, **SQUARE},
    "dinov2_with_registers": {**DINO, **SQUARE, "num_register_tokens": 3},
    # Without the random positions of its pretraining, so that trained towers compute the same twice.
    "dinov3_vit": {**SIZES, **SQUARE, "num_register_tokens": 4, "pos_embed_rescale": None},
    "vit": {**SIZES, **SQUARE},
    "deit": {**SIZES, **SQUARE},
}
VIT = {"model_type": "vit", **KINDS["vit"]}
every_kind = pytest.mark.parametrize("kind", KINDS)


def built(kind, precision="32-true", **settings):
    torch.manual_seed(3)
    where = {"config": {"model_type": kind, **KINDS[kind]}} if kind in KINDS else {"path": str(kind)}
    return VisionTower(VisionTowerSettings(**where, **settings), precision_of(precision, has_bf16=True))


def whole(kind):
    """The model as transformers builds it, with heads."""
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(4)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **KINDS[kind])).eval()
    with torch.no_grad():  # so that norms and tokens differ from absent norms and tokens
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def saved(kind, tmp_path):
    model = whole(kind)
    model.save_pretrained(tmp_path)
    return model, tmp_path


def images(views=2, seed=0):
    pixels = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (views, 3, 24, 24), np.uint8))
    return Images(pixels, torch.zeros(views, dtype=torch.int64), torch.tensor([views]))


def outputs(model, kind, pixels):
    """Return the output of transformers for normalised pixels."""
    inputs = {"pixel_values": pixels}
    if kind == "siglip2_vision_model":
        squares = pixels.view(len(pixels), 3, 3, 8, 3, 8)
        patches = [
            squares[:, :, row, :, column].permute(0, 2, 3, 1).flatten(1) for row in range(3) for column in range(3)
        ]
        inputs = {"pixel_values": torch.stack(patches, 1), "pixel_attention_mask": torch.ones(len(pixels), 9)}
        inputs["spatial_shapes"] = torch.tensor([[3, 3]] * len(pixels))
    with torch.no_grad():
        return model(**inputs, output_hidden_states=True)


MEANS = {
    "clip_vision_model": (0.48145466, 0.26862954),
    "dinov2": (0.485, 0.229),
    "dinov2_with_registers": (0.485, 0.229),
    "dinov3_vit": (0.485, 0.229),
    "deit": (0.485, 0.229),
}


@every_kind
@pytest.mark.parametrize("layer", [None, -1, -2, 1])
def test_the_tower_returns_the_patches_of_the_hidden_state(kind, layer, tmp_path):
    model, folder = saved(kind, tmp_path)
    tower = built(folder, feature_layer=layer)
    pictures = images()
    features = tower(pictures)
    assert features.shape == (2, 9, 16)
    assert tower_shape(tower.settings) == (24, 9, 16) == tower.shape

    normalised = pictures.pixels.double() / 255
    mean, deviation = torch.tensor(tower.normalization[1:])[:, None, :, None, None]
    normalised = ((normalised - mean) / deviation).float()
    output = MEANS.get(kind, (0.5, 0.5))
    first = pictures.pixels[0, 0, 0, 0].item() / 255
    assert normalised[0, 0, 0, 0].item() == pytest.approx((first - output[0]) / output[1], abs=1e-5)
    expected = outputs(model, kind, normalised)
    state = expected.last_hidden_state if layer is None else expected.hidden_states[layer]
    own = {"clip_vision_model": 1, "dinov2": 1, "vit": 1, "deit": 2, "dinov2_with_registers": 4, "dinov3_vit": 5}.get(
        kind, 0
    )
    assert torch.allclose(features, state[:, own:], atol=1e-5)


@every_kind
def test_first_feature_is_of_the_first_patch(kind):
    """What changes in the top left patch changes its embedding alone, before attention spreads it."""
    tower = built(kind)
    black = images()._replace(pixels=torch.zeros(1, 3, 24, 24, dtype=torch.uint8))
    marked = black._replace(pixels=black.pixels.clone())
    marked.pixels[:, :, :8, 8:16] = 255  # the second patch
    change = (tower(marked) - tower(black)).norm(dim=-1)[0]
    assert change.argmax() == 1


def test_first_patch_only_returns_the_first_token():
    tower = built("clip_vision_model", first_patch_only=True)
    assert tower_shape(tower.settings).patches == 1
    assert torch.equal(tower(images()), built("clip_vision_model")(images())[:, :1])


@every_kind
@pytest.mark.parametrize("layer", [None, -2])
def test_every_weight_that_trains_gets_a_gradient(kind, layer):
    tower = built(kind, trainable="full", feature_layer=layer)
    assert all(parameter.requires_grad for parameter in tower.parameters())
    tower(images()).square().sum().backward()
    assert [name for name, parameter in tower.named_parameters() if parameter.grad is None] == []


@every_kind
@pytest.mark.parametrize("checkpointing", [False, True])
def test_only_the_last_layers_train(kind, checkpointing):
    partly = {"trainable": "last_n_layers", "last_n_layers": 1, "feature_layer": -2}
    tower = built(kind, **partly, activation_checkpointing=checkpointing)
    tower(images()).square().sum().backward()
    reached = {name for name, parameter in tower.named_parameters() if parameter.grad is not None}
    assert reached == {name for name, parameter in tower.named_parameters() if parameter.requires_grad}
    # Of the three layers two are built; so the last is number 1.
    stacks = {"network.encoder.layers", "network.encoder.layer", "network.layers", "network.model.layer"}
    assert len(reached) > 9
    assert {name.split(".1.")[0] for name in reached} <= stacks
    reached = [parameter for parameter in tower.parameters() if parameter.grad is not None and parameter.ndim > 1]
    assert reached
    assert all(parameter.grad.norm() > 0 for parameter in reached)


@every_kind
def test_checkpointing_keeps_fewer_tensors_for_the_same_gradients(kind):
    actual = {}
    for on in (False, True):
        tower, kept = built(kind, trainable="full", activation_checkpointing=on), []
        with torch.autograd.graph.saved_tensors_hooks(lambda saved, kept=kept: kept.append(1) or saved, lambda x: x):
            loss = tower(images()).square().sum()
        loss.backward()
        actual[on] = len(kept), {name: parameter.grad for name, parameter in tower.named_parameters()}
    (many, expected), (few, gradients) = actual[False], actual[True]
    assert few < many / 2
    torch.testing.assert_close(gradients, expected)


def test_frozen_dinov3_has_the_positions_of_its_evaluation():
    """It stays in training mode, in which transformers scales positions at random."""
    config = {"model_type": "dinov3_vit", **KINDS["dinov3_vit"], "pos_embed_rescale": 2.0, "pos_embed_shift": 0.5}
    for trainable in ("none", "full"):
        tower = VisionTower(VisionTowerSettings(config=config, trainable=trainable), precision_of("32-true", True))
        features = tower(images())
        assert torch.equal(features, tower.eval()(images())) == (trainable == "none")


@pytest.mark.parametrize("precision, dtype", [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_frozen_runs_in_its_own_format_without_gradients(precision, dtype):
    tower = built("siglip_vision_model", precision)
    assert {parameter.dtype for parameter in tower.parameters()} == {dtype}
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
        features = tower(images())
    assert not features.requires_grad
    assert features.dtype == torch.float32


@pytest.mark.parametrize(
    "kind, dropout", [("vit", "hidden_dropout_prob"), ("siglip_vision_model", "attention_dropout")]
)
def test_frozen_has_no_dropout(kind, dropout):
    """It stays in training mode: Lightning warns of modules that are not."""
    config = {"model_type": kind, **KINDS[kind], dropout: 0.5}
    for trainable in ("none", "full"):
        tower = VisionTower(VisionTowerSettings(config=config, trainable=trainable), precision_of("32-true", True))
        assert all(module.training for module in tower.modules())
        assert torch.equal(tower(images()), tower(images())) == (trainable == "none")


def test_trained_keeps_wide_weights_under_autocast():
    tower = built("clip_vision_model", "bf16-mixed", trainable="last_n_layers", last_n_layers=2)
    formats = {parameter.requires_grad: parameter.dtype for parameter in tower.parameters()}
    assert formats == {True: torch.float32, False: torch.bfloat16}
    tower(images()).square().sum().backward()
    assert all(p.grad is not None for p in tower.parameters() if p.requires_grad)


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_the_tower_is_the_vision_part_of_a_model_with_text(family, tmp_path):
    from transformers import AutoConfig, AutoModel

    text = {**SIZES, "vocab_size": 20, "max_position_embeddings": 8, "eos_token_id": 1, "pad_token_id": 1}
    config = AutoConfig.for_model(family, vision_config={**SIZES, **SQUARE}, text_config=text)
    model = AutoModel.from_config(config).eval()
    model.save_pretrained(tmp_path)
    tower = built(tmp_path, feature_layer=-1)
    scale, mean, deviation = tower.normalization
    pixels = torch.stack([(images().pixels[:, i] * scale - mean[i]) / deviation[i] for i in range(3)], 1)
    state = outputs(model.vision_model, f"{family}_vision_model", pixels).hidden_states[-1]
    assert torch.allclose(tower(images()), state[:, int(family == "clip") :], atol=1e-5)


def test_a_pretrained_model_of_oblong_images_is_refused(tmp_path):
    from transformers import AutoConfig

    AutoConfig.for_model(**{**VIT, "image_size": [24, 16]}).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match=r"image_size of the model is [\[(]24, 16[\])]; expected a square"):
        tower_shape(VisionTowerSettings(path=str(tmp_path)))


def test_normalization_is_that_of_the_file_beside_the_weights(tmp_path):
    saved("siglip_vision_model", tmp_path)
    output = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "rescale_factor": 0.01}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(output))
    assert built(tmp_path).normalization == (0.01, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.parametrize("kind, expected", [("clip_vision_model", (122, 116, 104)), ("vit", (127, 127, 127))])
def test_background_is_what_normalises_to_nothing(kind, expected):
    tower = built(kind)
    assert tower_background(tower.settings) == expected
    pixels = torch.tensor(expected, dtype=torch.uint8)[None, :, None, None].expand(1, 3, 24, 24)
    assert tower._inputs(pixels)["pixel_values"].abs().max() < 0.02


def test_missing_weights_are_named(tmp_path):
    from safetensors.torch import load_file, save_file

    saved("siglip_vision_model", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in weights if "layers.1" in name and name.endswith("fc1.weight"))
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"vision_tower.path: .* lacks encoder.layers.1.mlp.fc1.weight: is it whole"):
        built(tmp_path)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "takes either path .* neither is given"),
        ({"path": "a", "config": {}}, "both are given"),
        ({"config": {"hidden_size": 16}}, "has no model_type"),
        ({"config": {"model_type": "qwen2"}}, "is of the model type qwen2; known are siglip_vision_model"),
        ({"config": {"model_type": "vit", "patchsize": 8}}, "vit has no such setting; did you mean patch_size"),
        ({"config": VIT, "feature_layer": -4}, "has 3 layers: expected -3 to -1"),
        ({"path": "/nowhere/at/all"}, "vision_tower.path: there is no directory"),
        ({"config": VIT, "trainable": "last_n_layers", "last_n_layers": 0}, "at least 1"),
        ({"config": {**VIT, "image_size": [24, 16]}}, r"whole number of at least 1, got \[24, 16\]"),
    ],
)
def test_wrong_settings_of_a_tower_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        tower_shape(VisionTowerSettings(**settings))


def test_more_layers_than_are_built():
    with pytest.raises(ValueError, match="last_n_layers is 3, but 2 layers are built"):
        built("vit", trainable="last_n_layers", last_n_layers=3, feature_layer=-2)


def test_offline_the_error_has_the_remedy(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="vision_tower.path: .*HF_HUB_OFFLINE is set.*set vision_tower.path to DIR"):
        tower_shape(VisionTowerSettings(path="google/siglip-base-patch16-224"))
