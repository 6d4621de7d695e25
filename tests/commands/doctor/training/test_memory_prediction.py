"""Checks the prediction of a pretrained model's memory, for which its config.json is enough."""

import json
from types import SimpleNamespace

import pytest

from commands.doctor.training import memory_prediction
from commands.doctor.training.memory_prediction import predict_memory
from lightning_modules.multimodal.checkpoints import base_model_identity
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel
from tests.support.families.tiny_image_text import CLASSES

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


def test_what_is_not_predicted_has_a_reason(predict, tmp_path):
    sharded, absent = predict(strategy="fsdp"), predict(path=str(tmp_path / "absent"))
    assert (sharded.status, absent.status) == ("ok", "warn")
    assert sharded.found.startswith("not predicted: the strategy shards the weights; ")
    assert absent.found.startswith("not predicted: ")
    assert "absent" in absent.found
    config = SimpleNamespace(trainer=SimpleNamespace(strategy="auto"))
    assert predict_memory(config, SimpleNamespace()) is None, "of a model that is not pretrained nothing is said"


@pytest.fixture
def predict_images(tmp_path):
    """predict_images(data, **settings of the language model): the prediction for a tiny Qwen2.5-VL."""
    config, processor = CLASSES["qwen2_5_vl"]()
    for part in (config, processor):
        part.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()  # its weights are not read

    def predicted(data, strategy="auto", **settings):
        model = PretrainedVisionLanguageModel(str(tmp_path), LanguageModelSettings(**settings))
        trainer = SimpleNamespace(strategy=strategy, precision="bf16-mixed", accelerator="cpu")
        return predict_memory(SimpleNamespace(trainer=trainer, data=SimpleNamespace(init_args=data)), model)

    return predicted


def test_an_existing_image_text_model_is_predicted(predict_images, tmp_path):
    prediction = predict_images({"packed_length": 128, "micro_batch_size": 2}, trainable="lora", quantize="nf4")
    assert prediction.status == "ok"
    assert f"{tmp_path} (lora, nf4) takes about" in prediction.found
    assert "activations of 128 tokens with 4 images of 4 tokens" in prediction.found
    assert "a micro-batch has up to 2 rows" in prediction.found


def test_an_image_text_model_without_its_processor_is_not_predicted(predict_images, tmp_path):
    (tmp_path / "processor_config.json").unlink()
    prediction = predict_images({"max_length": 64}, trainable="lora")
    assert prediction.status == "warn"
    assert "not predicted: model.init_args.path: " in prediction.found
    assert "has no preprocessor_config.json" in prediction.found


def test_an_image_text_model_with_fsdp_is_a_failure(predict_images):
    prediction = predict_images({"max_length": 64}, strategy="fsdp", trainable="lora")
    assert (prediction.status, prediction.remedy) == ("fail", "--trainer.strategy ddp")


def test_a_processor_of_the_hub_is_to_be_downloaded(tmp_path, monkeypatch):
    """The model has read its config, which is in the cache alone then."""
    monkeypatch.setattr(base_model_identity, "folder_of", lambda path: tmp_path)
    model = SimpleNamespace(path="acme/vl", image_settings={})
    with pytest.raises(ValueError, match="acme/vl is to be downloaded first: hf download acme/vl"):
        memory_prediction._processor(model)
