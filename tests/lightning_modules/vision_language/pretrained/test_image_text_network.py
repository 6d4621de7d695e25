"""Tests packed chats, black images and batches without an image, for every class."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.text.packing import one_per_row, pack
from datamodules.vision_language.pretrained.encoded_chat import collate_images
from datamodules.vision_language.pretrained.sample_encoder import ProcessedSampleEncoder
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.vision_language.pretrained.black_images import BlackImages
from lightning_modules.vision_language.pretrained.settings import PartSettings, language_model_settings
from tests.lightning_modules.vision_language.pretrained.small_networks import build
from tests.support.families.image_text.sizes import TEXT
from tests.support.families.tiny_image_text import CLASSES, DIRECTORIES, write_tiny_image_text


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


def rewritten(name, folder, **text):
    """The directory of a tiny model with another language model."""
    config, processor = CLASSES[name]()
    settings = {**config.to_dict(), "text_config": {**TEXT, "vocab_size": config.text_config.vocab_size, **text}}
    AutoModelForImageTextToText.from_config(type(config)(**settings)).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_paligemma_2_is_computed_with_eager_attention(tmp_path):
    """Its language model caps the scores of attention, which sdpa does not, and the logits."""
    gemma2 = {"model_type": "gemma2", "head_dim": 8, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0}
    folder = rewritten("paligemma", tmp_path, **gemma2)
    with pytest.raises(ValueError, match=r"attention is sdpa, .* gemma2 .*Set language_model\.attention eager$"):
        build(folder)
    model, network = build(folder, attention="eager")
    chat, images = encoded(model)[0]
    rows = one_per_row([chat], np.arange(1), model.pad)
    loss, count = network.loss(network.row_states(rows, images), rows.labels)
    types = torch.from_numpy(chat.supervised[None]).long()
    plain = network.causal_lm(input_ids=rows.tokens, token_type_ids=types, **images, attention_mask=types | 1).logits
    expected = torch.nn.functional.cross_entropy(plain[0, :-1], rows.labels[0, 1:], ignore_index=-100)
    assert (loss / count).item() == pytest.approx(expected.item(), rel=1e-5)


def test_logits_that_a_class_does_not_scale_as_its_language_model_are_refused(tmp_path):
    folder = rewritten("llava_next", tmp_path, model_type="granite", logits_scaling=8.0)
    with pytest.raises(ValueError, match="a llava_next with a granite processes its logits in an unknown way"):
        build(folder)
