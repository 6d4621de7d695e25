"""Compares FLOPs counted from shapes and settings with those that torch counts while a tiny model runs."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from datamodules.multimodal.batch import IGNORE, Chat, Images
from datamodules.multimodal.text.packing import one_per_row, pack
from lightning_modules.multimodal.connector.merge_embeddings import merge_features_into_embeddings
from lightning_modules.multimodal.connector.projector import Projector, ProjectorSettings
from lightning_modules.multimodal.flops import has_trainable_weights, language_model_flops, product_flops
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.vision.settings import VisionTowerSettings
from lightning_modules.multimodal.vision.vision_tower import VisionTower
from tests.lightning_modules.multimodal.conftest import VOCABULARY

PLACEHOLDER = 3
EAGER = partial(sdpa_kernel, SDPBackend.MATH)  # torch does not count the CPU's fused attention
SIZES = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
}


def tower(trainable="none", kind="siglip_vision_model", **settings):
    torch.manual_seed(4)
    config = {"model_type": kind, **SIZES}
    if kind == "siglip2_vision_model":
        config["num_patches"] = 16
    lacking = {"siglip2_vision_model": "image_size", "dinov2": "intermediate_size"}
    config.pop(lacking.get(kind, ""), None)
    settings = VisionTowerSettings(config=config, trainable=trainable, last_n_layers=2, **settings)
    return VisionTower(settings, precision_of("32-true", True))


def projector(language_model, encoder, kind="mlp", **settings):
    chosen = ProjectorSettings(kind=kind, hidden_size=16, queries=5, heads=2, depth=2, **settings)
    return Projector(chosen, encoder.output_size, language_model.hidden_size)


def chats(features, views=(1, 0, 2)):
    """Rows of chats, one with `views` images each, and the images."""
    made = []
    for number in views:
        tokens = torch.randint(10, VOCABULARY, (17 + 3 * number + number * features,)).numpy()
        tokens[2 : 2 + number * features] = PLACEHOLDER
        supervised = tokens > VOCABULARY
        supervised[-9:] = True
        made.append(Chat(tokens, supervised, number * features))
    pixels = torch.randint(0, 256, (sum(views), 3, 16, 16), dtype=torch.uint8)
    return made, Images(pixels, torch.zeros(sum(views), dtype=torch.int64), torch.tensor(views))


def counted(encoder, projection, model, rows, images):
    """Return the operations that torch counts, forward and backward."""

    def step():
        made = projection(encoder(images)).flatten(0, 1)
        embeddings = merge_features_into_embeddings(
            model.embed(rows.tokens), rows, made, rows.placeholders, PLACEHOLDER
        )
        total, _ = model.loss(model.hidden_states(embeddings, rows.positions), rows.labels)
        if total.requires_grad:
            total.backward()

    counter = FlopCounterMode(display=False)
    with EAGER(), counter:
        step()
    return counter.get_total_flops()


def estimated(encoder, projection, model, rows, images):
    before = has_trainable_weights(encoder) or has_trainable_weights(projection)
    view = encoder.flops() + projection.flops(encoder.shape.patches, behind_trained=has_trainable_weights(encoder))
    of_rows = language_model_flops(model.causal_lm, behind_trained=before)
    return len(images.pixels) * view + of_rows.total(rows, attention_within_chats=False)


def compare(encoder, projection, model, tolerance=0.002):
    features = projection.settings.count(encoder.shape.patches)
    made, images = chats(features)
    for rows in (one_per_row(made, torch.arange(3).numpy(), 0), pack(made, torch.arange(3).numpy(), 90, 0)[0]):
        order = rows.samples
        ordered = Images(torch.cat([images.pixels.split(images.views.tolist())[i] for i in order]), *images[1:])
        found = counted(encoder, projection, model, rows, ordered)
        assert estimated(encoder, projection, model, rows, ordered) == pytest.approx(found, rel=tolerance)


@pytest.mark.parametrize("of_the_model", ["none", "lora", "full", "last_n_layers"])
@pytest.mark.parametrize("of_the_tower", ["none", "full", "last_n_layers"])
def test_operations_are_counted_for_every_pattern_of_freezing(build, pretrained, of_the_tower, of_the_model):
    model = build(pretrained, trainable=of_the_model, last_n_layers=1)
    encoder = tower(of_the_tower)
    compare(encoder, projector(model, encoder), model)


@pytest.mark.parametrize("of_the_model", ["none", "full", "last_n_layers"])
def test_with_a_frozen_projector_nothing_passes_back_to_it(build, pretrained, of_the_model):
    model = build(pretrained, trainable=of_the_model, last_n_layers=1)
    encoder = tower()
    compare(encoder, projector(model, encoder, trainable=False), model)


@pytest.mark.parametrize("kind", ["linear", "deep_mlp", "pixel_shuffle", "resampler"])
@pytest.mark.parametrize("of_the_tower", ["none", "full"])
def test_flops_of_every_projector_are_those_counted(build, kind, of_the_tower):
    model, encoder = build(), tower(of_the_tower)
    compare(encoder, projector(model, encoder, kind), model)


@pytest.mark.parametrize("kind", ["clip_vision_model", "siglip2_vision_model", "dinov2", "vit", "deit"])
def test_flops_of_every_tower_are_those_counted(build, kind):
    model, encoder = build(), tower("full", kind)
    compare(encoder, projector(model, encoder), model)


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_flops_of_other_language_models_are_those_counted(build, kind):
    model, encoder = build(kind), tower()
    compare(encoder, projector(model, encoder), model)


def test_recomputed_activations_are_not_counted(build):
    model, encoder = build(activation_checkpointing=True), tower()
    plain = build()
    made, images = chats(16)
    rows = one_per_row(made, torch.arange(3).numpy(), 0)
    projection = projector(model, encoder)
    less = estimated(encoder, projection, model, rows, images)
    assert less == estimated(encoder, projection, plain, rows, images)
    assert counted(encoder, projection, model, rows, images) > 1.2 * less


def test_attention_within_chats_counts_less_than_within_rows(build):
    flops = language_model_flops(build().causal_lm, behind_trained=True)
    made, _ = chats(16)
    rows, _ = pack(made, torch.arange(3).numpy(), 90, 0)
    assert flops.total(rows, attention_within_chats=False) - flops.total(
        rows, attention_within_chats=True
    ) == flops.pair * (rows.tokens.shape[0] * rows.tokens.shape[1] ** 2 - sum(len(chat.tokens) ** 2 for chat in made))
    assert (rows.labels != IGNORE).sum() == rows.counts.supervised == 27


def test_experts_are_not_counted(build):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen3_moe",
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
    )
    assert language_model_flops(AutoModelForCausalLM.from_config(config), behind_trained=True) is None


def test_flops_of_grouped_convolutions_are_those_counted():
    layer = nn.Conv1d(8, 12, 3, padding=1, groups=4)
    counter = FlopCounterMode(display=False)
    with counter:
        layer(torch.zeros(2, 8, 20))
    assert counter.get_total_flops() == 2 * 20 * product_flops(layer.requires_grad_(False), back=False)
