"""Tests that a card describes a pretrained model by the model's own files."""

import pytest

from lightning_modules.multimodal.export.model_card import base_model_licenses, parts_card


@pytest.mark.parametrize(
    "readme, stated",
    [
        ("---\nlicense: apache-2.0\ntags: [a]\n---\n# A model\n", "apache-2.0"),
        ("---\nlicense: other\nlicense_name: llama3\n---\n", "llama3"),
        ("---\ntags: [a]\n---\nlicense: mit\n", None),
        ("# No front matter\nlicense: mit\n", None),
        ("---\n[broken: {\n---\n", None),
        ("---\n- a list\n---\n", None),
        ("---\nlicense: mit\n", None),  # it never ends
        (None, None),
    ],
)
def test_the_licence_is_that_of_the_front_matter(tmp_path, readme, stated):
    if readme is not None:
        (tmp_path / "README.md").write_text(readme)
    paths = {"language_model": str(tmp_path), "vision_tower": str(tmp_path), "from_a_config": None}
    assert base_model_licenses(paths) == {str(tmp_path): stated}


@pytest.mark.parametrize(
    "trainable, merged, library, words",
    [
        ("lora", False, "peft", "Adapters to /models/base"),
        ("lora", True, "transformers", "The language model, with"),
        ("full", False, "transformers", "The language model, with"),
        ("none", False, "transformers", "The language model is /models/base, unchanged"),
    ],
)
def test_the_description_matches_the_written_files(trainable, merged, library, words):
    settings = {"language_model": {"name": "/models/base"}, "encoder": {"class": "SeriesEncoder"}}
    card_text = parts_card("SeriesLanguageModel", trainable, merged, settings, {"/models/base": "mit"})
    assert card_text.library == library
    assert card_text.usage.startswith(words)
    assert "modality/" in card_text.usage
    assert "SeriesEncoder" in card_text.content
    assert card_text.pretrained == {"/models/base": "mit"}
