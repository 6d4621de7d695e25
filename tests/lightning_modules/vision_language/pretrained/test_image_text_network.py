"""Tests packed chats, black images and batches without an image, for every class."""

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.text.packing import one_per_row, pack
from datamodules.vision_language.pretrained.encoded_chat import collate_images
from datamodules.vision_language.pretrained.sample_encoder import ProcessedSampleEncoder
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.vision_language.pretrained.black_images import BlackImages
from lightning_modules.vision_language.pretrained.settings import PartSettings, language_model_settings
from tests.lightning_modules.vision_language.pretrained.small_networks import build
from tests.support.families.tiny_image_text import DIRECTORIES, write_tiny_image_text


def encoded(model, colours=("red", "blue", None, "green")):
    """Chats about images of unlike sizes; None has no image."""
    encoder, sizes = ProcessedSampleEncoder(model), [(56, 40), (30, 70), (0, 0), (48, 48)]
    found = []
    for color, size in zip(colours, sizes, strict=False):
        question = "<image>\nwhat colour is the square?" if color else "say red"
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": color or "red"}]
        pictures = [Image.new("RGB", size, color)] if color else []
        found.append(encoder.chat(ChatItem(messages, (), pictures), "a"))
    return found


@pytest.mark.parametrize("name", DIRECTORIES)
def test_packed_chats_are_apart_and_black_images_are_black(name, tmp_path):
    model, network = build(write_tiny_image_text(name, tmp_path))
    chats = encoded(model)
    tokens, indices = [chat for chat, _ in chats], np.arange(len(chats))
    alone = one_per_row(tokens, indices, model.pad)
    images = collate_images([images for _, images in chats])
    loss, count = network.loss(network.row_states(alone, images), alone.labels)
    if network.kind.packing_obstacle is None:
        packed, order = pack(tokens, indices, 2 * max(len(chat.tokens) for chat in tokens), model.pad)
        assert len(packed.tokens) < len(chats)
        pictures = collate_images([chats[index][1] for index in order])
        together, terms = network.loss(network.row_states(packed, pictures), packed.labels)
        assert terms == count
        assert together.item() == pytest.approx(loss.item(), rel=1e-5)

    loss.backward()
    weights = {name: weight for name, weight in network.named_parameters() if weight.requires_grad}
    assert [name for name, weight in weights.items() if weight.grad is None] == []  # DDP would wait for them

    black = collate_images([images for _, images in encoded(model, ("black", "black", None, "black"))])
    for key, expected in BlackImages(model.black).blinded(images).items():
        torch.testing.assert_close(expected, black[key], atol=1e-6, rtol=0)


@pytest.mark.parametrize("quantize", ["none", "nf4"])
def test_adapters_are_in_the_language_model_alone(quantize, tmp_path):
    frozen = {"vision_tower": PartSettings(), "connector": PartSettings()}
    _, network = build(write_tiny_image_text("qwen2_5_vl", tmp_path), frozen, trainable="lora", quantize=quantize)
    trained = [name for name, weight in network.named_parameters() if weight.requires_grad]
    assert trained
    assert all(".language_model.layers." in name and ".lora_" in name for name in trained)
    assert any("mlp" in name for name in trained)
    assert any("self_attn" in name for name in trained)


def test_a_language_model_of_its_own_is_refused():
    with pytest.raises(ValueError, match="language_model.config is set, but .* has its own language model"):
        language_model_settings(LanguageModelSettings(config={"model_type": "qwen2"}), "models/x")
