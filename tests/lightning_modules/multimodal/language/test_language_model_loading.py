"""Tests which models are built, which weights train in which dtype, and which settings are refused."""

import json

import pytest
import torch
from jsonargparse import ArgumentParser
from safetensors.torch import load_file, save_file

from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings
from tests.lightning_modules.multimodal.conftest import CONFIGS, VOCABULARY
from tests.support.language.gemma2 import GEMMA2


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


# -- what trains -----------------------------------------------------------------------------------------------------


def test_trainable_none_trains_no_weight(build, pretrained):
    assert trained(build(pretrained, trainable="none")) == set()


def test_trainable_full_trains_every_weight(build):
    model = build(trainable="full")
    assert trained(model) == {name for name, _ in model.named_parameters()}


def test_trainable_last_n_layers_trains_these_layers_alone(build, pretrained):
    names = trained(build(pretrained, trainable="last_n_layers", last_n_layers=2))
    assert {name.split(".")[3] for name in names} == {"1", "2"}
    assert all(".layers." in name for name in names)
    with pytest.raises(ValueError, match="last_n_layers is 4, but the model has 3 layers"):
        build(pretrained, trainable="last_n_layers", last_n_layers=4)


def test_trainable_lora_trains_adapters_of_every_projection(build, pretrained):
    model = build(pretrained, trainable="lora", lora=LoraSettings(rank=3, alpha=6.0))
    names = trained(model)
    assert names
    assert all("lora_" in name for name in names)
    assert {name.split(".lora_")[0].split(".")[-1] for name in names} == {
        *("q_proj", "k_proj", "v_proj", "o_proj"),
        *("gate_proj", "up_proj", "down_proj"),
    }
    layer = model.causal_lm.get_decoder().layers[0].self_attn.q_proj
    assert layer.lora_A["default"].weight.shape == (3, 32)
    assert layer.scaling["default"] == 2.0


def test_lora_settings_reach_peft(build, pretrained):
    lora = LoraSettings(rank=2, dropout=0.25, target_modules=["q_proj"], bias="all")
    model = build(pretrained, trainable="lora", lora=lora)
    names = trained(model)
    assert {name.split(".self_attn.")[1].split(".")[0] for name in names} == {"q_proj", "k_proj", "v_proj"}
    assert all(name.endswith("bias") or ".q_proj.lora_" in name for name in names)
    assert model.causal_lm.get_decoder().layers[0].self_attn.q_proj.lora_dropout["default"].p == 0.25
    with pytest.raises(ValueError, match="language_model.lora: .*nowhere"):
        build(pretrained, trainable="lora", lora=LoraSettings(target_modules=["nowhere"]))


def test_dropout_of_a_frozen_model_is_off(build, tmp_path):
    """It stays in training mode, in which activation checkpointing works."""
    settings = LanguageModelSettings(config={**CONFIGS["qwen2"], "attention_dropout": 0.5})
    LanguageModel(settings, VOCABULARY, precision_of("32-true", True)).causal_lm.save_pretrained(tmp_path)
    tokens, positions = torch.arange(6).unsqueeze(0), torch.arange(6).unsqueeze(0)
    frozen, full = build(tmp_path, trainable="none"), build(tmp_path, trainable="full")
    assert frozen.training
    assert full.training
    for model, same in ((frozen, True), (full, False)):
        states = [model.hidden_states(model.embed(tokens), positions) for _ in range(2)]
        assert torch.equal(*states) == same


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainable", ["none", "lora", "full", "last_n_layers"])
def test_trained_weights_are_float32_and_frozen_ones_bfloat16(build, pretrained, trainable):
    """transformers keeps the file's bf16 for trained weights too, where small steps round to nothing."""
    model = build(pretrained, precision="bf16-mixed", trainable=trainable)
    for name, parameter in model.named_parameters():
        assert parameter.dtype == (torch.float32 if parameter.requires_grad else torch.bfloat16), name
    frequencies = [buffer for name, buffer in model.named_buffers() if "inv_freq" in name]
    assert frequencies
    assert all(buffer.dtype == torch.float32 for buffer in frequencies)


def test_trained_layers_keep_what_the_file_has(build, tmp_path):
    """Trained layers keep the fp32 weights of a file, although the frozen layers become bf16."""
    original = build()
    original.causal_lm.save_pretrained(tmp_path)
    model = build(tmp_path, precision="bf16-mixed", trainable="last_n_layers", last_n_layers=1)
    layers = zip(model.causal_lm.get_decoder().layers, original.causal_lm.get_decoder().layers, strict=True)
    pairs = [(a.mlp.up_proj.weight, b.mlp.up_proj.weight) for a, b in layers]
    assert torch.equal(*pairs[2])
    assert torch.equal(pairs[0][0], pairs[0][1].bfloat16())


# -- vocabulary ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_new_tokens_widen_the_vocabulary(build, tmp_path, kind):
    """Tied and untied; as the mean of the others, so that the same is built again whatever the seed."""
    original = build(kind)
    original.causal_lm.save_pretrained(tmp_path)
    model, again = (build(tmp_path, vocabulary=VOCABULARY + 3, trainable="none") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    inputs, outputs = model.causal_lm.get_input_embeddings().weight, model.causal_lm.get_output_embeddings().weight
    assert inputs.shape == outputs.shape == (VOCABULARY + 3, 32)
    assert (inputs is outputs) == (kind == "qwen2")
    originals = original.causal_lm.get_input_embeddings(), original.causal_lm.get_output_embeddings()
    for new, old in zip((inputs, outputs), originals, strict=True):
        assert torch.equal(new[:VOCABULARY], old.weight)
        torch.testing.assert_close(new[VOCABULARY:], old.weight.mean(0).expand(3, -1), atol=1e-6, rtol=0)


def test_spare_rows_are_kept(build, pretrained):
    """Qwen's matrix has more rows than its tokenizer has tokens."""
    model = build(pretrained, vocabulary=VOCABULARY - 20, trainable="none")
    assert model.embed(torch.tensor([VOCABULARY - 1])).shape == (1, 32)


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_frozen_model_without_pretrained_weights_is_refused(build):
    with pytest.raises(ValueError, match="learns nothing when frozen"):
        build(trainable="none")


@pytest.mark.parametrize("arguments", [{}, {"path": "a", "config": {"model_type": "qwen2"}}])
def test_a_path_and_a_config_together_or_none_are_refused(arguments):
    with pytest.raises(ValueError, match="takes either path"):
        LanguageModelSettings(**arguments).check()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no model_type"),
        ({"model_type": "qwen99"}, "'qwen99', which transformers does not know"),
        ({"model_type": "qwen2", "hiden_size": 3}, "no such setting; did you mean hidden_size"),
        ({"model_type": "qwen2", "vocab_size": 3}, "it follows from the tokenizer"),
        ({"model_type": [1]}, r"\[1\], which transformers does not know"),
        ({"model_type": "qwen2", "hidden_size": -1}, "hidden_size must be a whole number of at least 1, got -1"),
        ({"model_type": "qwen2", "num_hidden_layers": None}, "num_hidden_layers must be .* got None"),
        ({"model_type": "qwen2", "layer_types": [1]}, "language_model.config: transformers cannot build this model: "),
        (
            {"model_type": "qwen2", "rope_parameters": 3},
            "language_model.config: transformers cannot build this model: ",
        ),
    ],
)
def test_wrong_configs_are_refused_by_key(config, message):
    with pytest.raises(ValueError, match=message):
        LanguageModel(LanguageModelSettings(config=config), 10, precision_of("32-true", True))


def load(path):
    return LanguageModel(LanguageModelSettings(path=str(path)), VOCABULARY, precision_of("32-true", True))


def test_missing_files_are_named(pretrained, tmp_path):
    with pytest.raises(ValueError, match="there is no directory"):
        load(tmp_path / "absent")
    with pytest.raises(ValueError, match="has no config.json and no weights"):
        load(tmp_path)
    (tmp_path / "config.json").write_text((pretrained / "config.json").read_text())
    with pytest.raises(ValueError, match=r"has no weights \(\*.safetensors\)"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(ValueError, match="cannot be loaded: .*header"):
        load(tmp_path)
    weights = load_file(pretrained / "model.safetensors")
    save_file({name: w for name, w in weights.items() if "up_proj" not in name}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="lacks .*layers.0.mlp.up_proj.weight.*: is it whole"):
        load(tmp_path)


def test_code_in_a_model_directory_is_not_run(tmp_path):
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Mine", "AutoModelForCausalLM": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_offline_the_error_of_a_hub_name_has_the_remedy(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set.*hf download nobody/nothing --local-dir DIR"):
        load("nobody/nothing")


def test_offline_a_directory_loads(pretrained, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert load(pretrained).hidden_size == 32


def test_settings_come_from_yaml():
    parser = ArgumentParser()
    parser.add_argument("--language_model", type=LanguageModelSettings)
    text = "{path: null, config: {model_type: qwen2, hidden_size: 8}, trainable: lora, lora: {rank: 4, bias: all}}"
    namespace = parser.parse_args([f"--language_model={text}", "--language_model.lora.alpha=2"])
    parsed = parser.instantiate_classes(namespace)
    assert parsed.language_model == LanguageModelSettings(
        config={"model_type": "qwen2", "hidden_size": 8}, trainable="lora", lora=LoraSettings(4, 2.0, bias="all")
    )


@pytest.mark.parametrize("from_path", [False, True])
def test_attention_that_a_model_does_not_have_is_named_with_what_to_set(tmp_path, from_path):
    settings, formats = LanguageModelSettings(config=GEMMA2, attention="eager"), precision_of("32-true", True)
    eager = LanguageModel(settings, VOCABULARY, formats)
    eager.causal_lm.save_pretrained(tmp_path)
    refused = LanguageModelSettings(path=str(tmp_path)) if from_path else LanguageModelSettings(config=GEMMA2)
    with pytest.raises(ValueError, match=r"attention is sdpa, .* gemma2 .*Set language_model\.attention eager$"):
        LanguageModel(refused, VOCABULARY, formats)
    tokens = torch.arange(6).unsqueeze(0)
    assert eager.hidden_states(eager.embed(tokens), tokens).shape == (1, 6, 32)


# -- embeddings at the start -----------------------------------------------------------------------------------------


def of_random_weights(tied: bool, scale: float) -> LanguageModel:
    torch.manual_seed(1)
    settings = LanguageModelSettings(config={**CONFIGS["qwen2"], "tie_word_embeddings": tied}, embedding_scale=scale)
    return LanguageModel(settings, VOCABULARY, precision_of("32-true", has_bf16=True))


def test_embeddings_begin_larger_than_what_writes_them():
    plain, scaled = (of_random_weights(tied=False, scale=scale) for scale in (1.0, 12.0))
    tokens = torch.arange(VOCABULARY)
    torch.testing.assert_close(scaled.embed(tokens), 12 * plain.embed(tokens))
    assert torch.equal(*(model.causal_lm.get_output_embeddings().weight for model in (plain, scaled)))


def test_embeddings_that_write_or_are_pretrained_are_not_scaled(build, pretrained):
    with pytest.raises(ValueError, match="set tie_word_embeddings: false"):
        of_random_weights(tied=True, scale=12.0)
    with pytest.raises(ValueError, match="and 1 for a pretrained model"):
        build(pretrained, embedding_scale=12.0)
