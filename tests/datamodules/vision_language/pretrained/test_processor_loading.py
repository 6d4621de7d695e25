"""Tests that a processor is refused if a package that it needs is not installed."""

import sys

import pytest

from datamodules.vision_language.pretrained.processor import ModelProcessor
from engine.system.extras import MissingPackagesError
from tests.conftest import REPOSITORY
from tests.support.families.tiny_image_text import write_tiny_image_text


def test_smolvlm_without_num2words_names_the_package_to_install(monkeypatch, tmp_path):
    write_tiny_image_text("smolvlm", tmp_path)
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setitem(sys.modules, "num2words", None)
    with pytest.raises(MissingPackagesError) as refused:
        ModelProcessor("SmolVLM", tmp_path)
    assert refused.value.lacking == "the processor of SmolVLM needs num2words, not installed here"
    assert refused.value.command.endswith("pip install '.[smolvlm]'")
    monkeypatch.undo()
    assert ModelProcessor("SmolVLM", tmp_path).image_token > 0
