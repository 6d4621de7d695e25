"""Tests that a checkpoint is refused over another base model than it was trained on."""

import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightning_modules.multimodal.checkpoints.base_model_identity import base_identity, check_base
from lightning_modules.multimodal.language.settings import LanguageModelSettings, LoraSettings


def identity(path, tokenizer="t", **settings):
    return base_identity(LanguageModelSettings(path=str(path), **{"trainable": "lora", **settings}), tokenizer)


@pytest.fixture
def copy(pretrained, tmp_path):
    return shutil.copytree(pretrained, tmp_path / "copy")


def test_the_same_model_elsewhere_is_the_same(pretrained, copy):
    assert identity(pretrained) != identity(copy)  # by name alone
    check_base(identity(pretrained), identity(copy))
    check_base(identity(pretrained), identity(copy, lora=LoraSettings(dropout=0.5)))


def test_the_version_that_wrote_it_does_not_count(pretrained, copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "transformers_version": "99", "dtype": "float32"}))
    check_base(identity(pretrained), identity(copy))


def test_other_weights_are_refused(pretrained, copy):
    weights = load_file(copy / "model.safetensors")
    weights["model.norm.weight"][3] += 1
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(ValueError, match=rf"trained on the language model {pretrained}, .*{copy}.* differ: weights"):
        check_base(identity(pretrained), identity(copy))
    full = {"trainable": "full"}  # the checkpoint holds all of them
    check_base(identity(pretrained, **full), identity(copy, **full))


def test_another_architecture_is_refused(pretrained, copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    with pytest.raises(ValueError, match="differ: architecture"):
        check_base(identity(pretrained), identity(copy))


def test_another_tokenizer_is_refused(pretrained):
    with pytest.raises(ValueError, match="differ: tokenizer a, here b"):
        check_base(identity(pretrained, "a"), identity(pretrained, "b"))


def test_other_adapters_are_refused(pretrained):
    """Their alpha is in no weight, and changes what the model computes."""
    with pytest.raises(ValueError, match="differ: lora .*32.0.*, here .*8.0"):
        check_base(identity(pretrained), identity(pretrained, lora=LoraSettings(alpha=8.0)))


def test_random_models_are_known_by_their_config():
    configs = ({"model_type": "qwen2", "hidden_size": size} for size in (8, 16))
    small, large = (base_identity(LanguageModelSettings(config=config), "t") for config in configs)
    check_base(small, small)
    assert small["name"] == "random qwen2"
    with pytest.raises(ValueError, match="differ: architecture"):
        check_base(small, large)


def test_files_of_the_hub_are_known_by_their_blobs(pretrained, copy):
    """Nothing is read then."""
    sha256 = hashlib.sha256((pretrained / "model.safetensors").read_bytes()).hexdigest()
    expected = identity(copy)["weights"]
    (copy / "model.safetensors").unlink()
    (copy.parent / sha256).write_bytes(b"not read")
    (copy / "model.safetensors").symlink_to(copy.parent / sha256)
    assert identity(copy)["weights"] == expected


def test_a_checkpoint_without_a_name_is_refused(pretrained):
    with pytest.raises(ValueError, match="does not name the language model"):
        check_base(None, identity(pretrained))


def test_the_identity_is_weights_only_loadable(pretrained, tmp_path):
    torch.save(identity(pretrained), tmp_path / "checkpoint")
    assert torch.load(tmp_path / "checkpoint", weights_only=True) == identity(pretrained)
