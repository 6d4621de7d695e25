"""Compares the predicted memory of image-text models with what a step allocates."""

import pytest
import torch

from commands.doctor.training.image_rows import fullest_row
from datamodules.vision_language.pretrained.processor import ModelProcessor
from engine.system.allocation_counter import AllocationCounter
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.step_trace import Workload
from lightning_modules.vision_language.pretrained.image_text_model_loading import load_config
from lightning_modules.vision_language.pretrained.image_text_network import ImageTextNetwork
from lightning_modules.vision_language.pretrained.memory_estimate import estimate_image_text_memory
from lightning_modules.vision_language.pretrained.settings import PartSettings, language_model_settings
from tests.support.families.tiny_image_text import CLASSES

TOKENS = 384
TEXT = {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 7,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 64,
}
TOWER = {
    "llava": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "image_size": 224},
    "qwen2_5_vl": {"hidden_size": 256, "intermediate_size": 768, "depth": 4, "out_hidden_size": TEXT["hidden_size"]},
}
IMAGES = {
    "llava": {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224}},
    "qwen2_5_vl": {"size": {"shortest_edge": 784, "longest_edge": 224 * 224}},
}
FULL = {"trainable": "full"}
ADAPTERS = {"trainable": "lora", "quantize": "nf4", "activation_checkpointing": True}


def write(folder, config, processor):
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def write_wide(name, folder):
    """Write config and processor of a model whose weights and activations are more than constants."""
    config, processor = CLASSES[name]()
    text = {**config.text_config.to_dict(), **TEXT}
    text.pop("layer_types", None)
    if name == "qwen2_5_vl":
        text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [8, 12, 12]}
    vision = {**config.vision_config.to_dict(), **TOWER[name]}
    return write(folder, type(config)(**{**config.to_dict(), "text_config": text, "vision_config": vision}), processor)


def settings_of(folder, model, tower):
    parts = {name: PartSettings(tower) for name in ("vision_tower", "connector")}
    return language_model_settings(LanguageModelSettings(**model), str(folder)), parts


def measured(config, settings, parts, precision, row):
    """Return the peak of the second step of AdamW on real tensors, in bytes."""
    from transformers import AutoModelForImageTextToText

    frozen = settings.trainable == "lora" and parts["vision_tower"].trainable == "none"
    kind = precision.frozen if frozen else precision.trained
    with AllocationCounter() as counter:
        network = AutoModelForImageTextToText.from_config(config, dtype=kind, attn_implementation="sdpa").train()
        model = ImageTextNetwork(network, settings, parts, 1, precision)
        del network
        images = {name: array.clone() for name, array in row.images.items()}  # counted, as on a device
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad])
        for _ in range(2):
            counter.mark()
            loss, number = model.loss(model.row_states(row.rows, images), row.rows.labels)
            loss = loss / number
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        counter.mark()
    return counter.peaks[-1], model


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft uses it
@pytest.mark.parametrize(
    ("name", "precision", "model", "tower"),
    [
        ("qwen2_5_vl", "32-true", FULL, "full"),
        ("qwen2_5_vl", "bf16-mixed", ADAPTERS, "none"),
        ("llava", "32-true", FULL, "full"),
        ("llava", "bf16-mixed", ADAPTERS, "none"),
    ],
)
def test_the_peak_is_that_of_a_step(name, precision, model, tower, tmp_path):
    """Decoder layers are extrapolated from 2 and 4 to 7; real tensors of a second step are counted."""
    folder, formats = write_wide(name, tmp_path), precision_of(precision, has_bf16=True)
    settings, parts = settings_of(folder, model, tower)
    row = fullest_row(ModelProcessor(str(folder), folder, IMAGES[name]), TOKENS, packed_length=TOKENS)
    work = Workload(TOKENS)
    estimate = estimate_image_text_memory(
        load_config_without_weights(folder), settings, parts, formats, work, row.rows, row.images
    )
    peak, network = measured(load_config_without_weights(folder), settings, parts, formats, row)
    print(f"{name}, {model['trainable']}: predicted {estimate.total:,} bytes, measured {peak:,}")
    trained = [weight for weight in network.parameters() if weight.requires_grad]
    assert estimate.gradients == sum(weight.nbytes for weight in trained)
    assert estimate.optimizer == 8 * sum(weight.numel() for weight in trained)
    buffers = sum(buffer.nbytes for buffer in network.buffers())
    assert estimate.weights == pytest.approx(sum(w.nbytes for w in network.parameters()) + buffers, rel=0.01)
    assert estimate.total == pytest.approx(peak, rel=0.005)


def load_config_without_weights(folder):
    (folder / "model.safetensors").touch()  # the loader asks whether the directory is whole
    return load_config(str(folder))


@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_traced_or_refused(name, tmp_path):
    """The frozen tower's weights are counted, and the images' tokens are in the row."""
    folder = write(tmp_path, *CLASSES[name]())
    settings, parts = settings_of(folder, {"trainable": "lora"}, "none")
    processor, formats = ModelProcessor(str(folder), folder), precision_of("bf16-mixed", has_bf16=True)
    row = fullest_row(processor, 96)
    assert int((row.rows.tokens == processor.image_token).sum()) == row.image_tokens > 0
    config = load_config_without_weights(folder)
    if name in ("idefics3", "smolvlm"):  # the values of pixels decide which images are real
        with pytest.raises(ValueError, match="does not run on tensors without values"):
            estimate_image_text_memory(config, settings, parts, formats, Workload(96), row.rows, row.images)
        return
    frozen = estimate_image_text_memory(config, settings, parts, formats, Workload(96), row.rows, row.images)
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        whole = AutoModelForImageTextToText.from_config(config, dtype=formats.frozen)
    tower_and_all = sum(weight.nbytes for weight in whole.parameters())
    assert frozen.weights >= tower_and_all + frozen.gradients, "the adapters' gradients are as large as the adapters"
    assert frozen.weights == pytest.approx(tower_and_all + frozen.gradients, rel=0.05), "and buffers"
    assert 0 < frozen.gradients < frozen.weights
