"""Fixtures of the tests of pretrained image-text models: chats, and directories of tiny models."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lightning_modules.vision_language.pretrained.small_runs import write_chats
from tests.support.families.tiny_image_text import write_tiny_image_text


@pytest.fixture(scope="package")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with eight chats, two of them without an image, and a question about each image."""
    return write_chats(tmp_path_factory.mktemp("chats"))


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """directory(name): the directory of a tiny model."""
    built: dict[str, Path] = {}

    def write(name: str) -> Path:
        if name not in built:
            built[name] = write_tiny_image_text(name, tmp_path_factory.mktemp(name))
        return built[name]

    return write
