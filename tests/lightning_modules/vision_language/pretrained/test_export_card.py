"""Tests the code on the model card of an untrained model; test_image_text_classes.py runs that of each class."""

import json
from pathlib import Path

import pytest

from datamodules.vision_language.chat_file import ImageChat
from datamodules.vision_language.pretrained.native_images import NativeImages
from lightning_modules.vision_language.pretrained.export import export_pretrained_model
from tests.lightning_modules.vision_language.pretrained.small_networks import build
from tests.support.data_files.picture_forms import PICTURES
from tests.support.families.tiny_image_text import write_tiny_image_text
from tests.support.outputs.model_card import run_code


@pytest.fixture
def exported(tmp_path):
    """exported(directory, **language_model): the folder of an export of the directory, with its card."""

    def write(path, **language_model):
        model, network = build(Path(path), **language_model)
        folder = tmp_path / "export"
        folder.mkdir()
        card = export_pretrained_model(network, model, folder, merge=False, trained=[])
        (folder / "README.md").write_text(card.usage)
        return folder

    return write


def test_pictures_are_read_as_in_training(exported, tmp_path):
    folder = exported(write_tiny_image_text("llava", tmp_path / "model"))
    (folder / "picture.png").write_bytes(PICTURES["transparent"])
    (names,) = run_code(folder)
    for name, data in PICTURES.items():
        (folder / "picture.png").write_bytes(data)
        read = names["read_image"](folder / "picture.png")
        (expected,) = NativeImages(10**8).decode_images(ImageChat(name, [], [data]))
        assert read.size == expected.size, name
        assert read.tobytes() == expected.tobytes(), name


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # peft uses it
def test_adapters_of_a_relative_path_end_their_answers(exported, tmp_path, monkeypatch):
    """The base model's own settings do not name the end of a turn, at which `predict` ends an answer."""
    settings = write_tiny_image_text("llava", tmp_path / "model") / "generation_config.json"
    own = json.loads(settings.read_text())
    end, other = own["eos_token_id"], own["pad_token_id"]
    settings.write_text(json.dumps({**own, "eos_token_id": other}))
    monkeypatch.chdir(tmp_path)
    folder = exported("model", trainable="lora")
    (folder / "picture.png").write_bytes(PICTURES["plain"])
    (names,) = run_code(folder)
    assert names["model"].active_adapters == ["default"]
    assert f"eos_token_id={sorted([end, other])}" in (folder / "README.md").read_text()
