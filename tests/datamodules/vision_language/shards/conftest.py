"""Fixture `write_shard`: writes a tar shard of the given files."""

import json

import pytest

from tests.support.data_files.vision_language_files import write_files_in_tar


@pytest.fixture
def write_shard(tmp_path):
    """Writes a shard: ``write_shard("train-000.tar", {"000.jpg": b"...", "000.json": {...}}) -> path``."""

    def write(name, files):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        as_bytes = {key: data if isinstance(data, bytes) else json.dumps(data).encode() for key, data in files.items()}
        return write_files_in_tar(path, as_bytes)

    return write
