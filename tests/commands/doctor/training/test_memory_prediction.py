"""Checks the prediction of a pretrained model's memory, for which its config.json is enough."""

import json
from types import SimpleNamespace

import pytest

from commands.doctor.training.memory_prediction import predict_memory
from lightning_modules.multimodal.language.settings import LanguageModelSettings

SEVEN_BILLION = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


@pytest.fixture
def predict(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SEVEN_BILLION))

    def predicted(optimizer="adamw", offload=False, strategy="auto", data=None, path=str(tmp_path), **settings):
        options = {"trainable": "lora", "activation_checkpointing": True, **settings}
        model = SimpleNamespace(
            language_model_settings=LanguageModelSettings(path=path, **options),
            optimizer_name=optimizer,
            optimizer_settings=SimpleNamespace(offload=offload, fused=False),
        )
        trainer = SimpleNamespace(strategy=strategy, precision="bf16-mixed", accelerator="cpu")
        config = SimpleNamespace(trainer=trainer, data=SimpleNamespace(init_args=data or {}))
        return predict_memory(config, model)

    return predicted


def test_a_quantized_model_is_predicted(predict):
    prediction = predict(quantize="nf4", optimizer="adamw_8bit").found
    assert "(lora, nf4) takes about 7.5" in prediction
    assert "weights 5.32, gradients 0.15, optimizer 0.0" in prediction
    assert "activations of 2,048 tokens 2.0" in prediction
    assert "it fits a GPU of 24 GB" in prediction
    assert prediction.endswith("14.19 GiB of the host while it is loaded")
    other = predict(offload=True, data={"packed_length": 512, "micro_batch_size": 4, "batch_size": 8}).found
    assert "optimizer 0.00" in other
    assert "activations of 512 tokens" in other
    assert "a micro-batch has up to 4 rows" in other


def test_models_with_other_names_of_their_sizes_are_predicted(predict, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt", "architectures": ["OPTForCausalLM"]}))
    assert "takes about" in predict().found


def test_what_fits_follows_from_the_settings(predict):
    prediction = predict().found
    assert "(lora) takes about 16." in prediction
    assert "optimizer 0.30" in prediction
    assert "fits a GPU of 24 GB" in prediction
    assert "of the host" not in prediction
    assert "fits a GPU of 40 GB" in predict(activation_checkpointing=False).found
    assert "more than a GPU of 80 GB has" in predict(trainable="full").found


def test_nothing_is_predicted_of_other_models(predict, tmp_path):
    assert predict(strategy="fsdp") is None
    assert predict(path=str(tmp_path / "absent")) is None
    config = SimpleNamespace(trainer=SimpleNamespace(strategy="auto"))
    assert predict_memory(config, SimpleNamespace()) is None
