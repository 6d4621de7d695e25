"""Fixtures of several tests of chats with images."""

import pytest

from datamodules.vision_language.source_config import SourceSettings
from tests.support.data_files.vision_language_files import colored, write_llava


@pytest.fixture
def chats(tmp_path):
    """40 samples in a file."""
    return SourceSettings(str(write_llava(tmp_path / "chats.json", [colored(number) for number in range(40)])))
