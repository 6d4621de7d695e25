"""Compares the predicted memory with that of models that are built, and with what autograd keeps."""

import pytest
import torch

from lightning_modules.multimodal.language.config import LanguageModelSettings, LoraSettings
from lightning_modules.multimodal.language.memory_estimate import estimate_memory
from lightning_modules.multimodal.language.precision import precision_of
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY

PRECISION = precision_of("bf16-mixed", has_bf16=True)
WIDE = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4, "num_attention_heads": 4}
QWEN = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "tie_word_embeddings": False},
}  # fmt: skip


def estimate(tokens=64, config=None, vocabulary=VOCABULARY, state=8, **settings):
    chosen = LanguageModelSettings(config=config or {**CONFIGS["qwen2"], **WIDE}, **settings)
    return estimate_memory(chosen, vocabulary, PRECISION, tokens, state)


@pytest.mark.parametrize(
    "settings",
    [
        {"trainable": "full"},
        {"trainable": "last_n_layers"},
        *({"trainable": "lora", "quantize": kind} for kind in ("none", "nf4", "int8")),
        {"trainable": "lora", "quantize": "nf4", "double_quantize": False, "lora": LoraSettings(use_dora=True)},
    ],
    ids=str,
)
def test_weights_and_gradients_are_those_of_the_model(build, settings):
    found = estimate(**settings, config=CONFIGS["llama"])
    model = build("llama", precision="bf16-mixed", **settings)
    assert found.weights == sum(p.numel() * p.element_size() for p in model.parameters())
    trained = [p for p in model.parameters() if p.requires_grad]
    assert found.gradients == sum(p.numel() * p.element_size() for p in trained)
    assert found.optimizer == 8 * sum(p.numel() for p in trained)
    assert found.total == sum(found) - found.loading


@pytest.mark.parametrize("kind", ["none", "nf4"])
def test_activations_are_what_autograd_keeps(kind):
    from lightning_modules.multimodal.language.language_model import LanguageModel

    tokens, config = 96, {**CONFIGS["qwen2"], **WIDE}
    settings = LanguageModelSettings(config=config, trainable="lora", quantize=kind)
    torch.manual_seed(1)
    model = LanguageModel(settings, VOCABULARY, PRECISION)
    kept = {}

    def keep(tensor):
        if tensor.requires_grad or not isinstance(tensor, torch.nn.Parameter):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    row = torch.arange(tokens).unsqueeze(0) % VOCABULARY
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss, _ = model.loss(model.hidden_states(model.embed(row), torch.arange(tokens).unsqueeze(0)), row)
    found = sum(storage.nbytes() for place, storage in kept.items() if place not in own)
    loss.backward()
    predicted = estimate_memory(settings, VOCABULARY, PRECISION, tokens).activations
    assert predicted == pytest.approx(found, rel=0.3)


def test_a_model_of_7b_fits_24_gb_in_4_bits_alone():
    options = {"activation_checkpointing": True, "trainable": "lora"}
    sizes = {
        (name, kind): estimate(2048, {"model_type": "qwen2", **config}, 151_936, quantize=kind, **options)
        for name, config in QWEN.items()
        for kind in ("none", "nf4", "int8")
    }
    gib = {key: found.weights / 2**30 for key, found in sizes.items()}
    assert gib["7B", "nf4"] == pytest.approx(5.31, abs=0.02) and gib["7B", "none"] == pytest.approx(14.33, abs=0.02)
    assert gib["7B", "int8"] == pytest.approx(8.26, abs=0.02) and gib["0.5B", "nf4"] < 0.46
    assert sizes["7B", "nf4"].total < 10e9 < 17e9 < sizes["7B", "none"].total
    assert sizes["7B", "nf4"].loading == sizes["7B", "none"].loading


def test_optimizer_states_and_checkpointing():
    plain = estimate(trainable="lora", lora=LoraSettings(rank=64))
    assert estimate(trainable="lora", lora=LoraSettings(rank=64), state=0).optimizer == 0
    assert plain.optimizer / 4 <= estimate(trainable="lora", lora=LoraSettings(rank=64), state=2).optimizer
    less = estimate(trainable="lora", lora=LoraSettings(rank=64), activation_checkpointing=True)
    assert less.activations < 0.6 * plain.activations
