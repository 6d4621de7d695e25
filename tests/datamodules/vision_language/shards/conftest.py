import io
import json
import tarfile

import pytest


@pytest.fixture
def write_shard(tmp_path):
    """Writes a shard: ``write_shard("train-000.tar", {"000.jpg": b"...", "000.json": {...}}) -> path``."""

    def write(name, files):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path, "w") as tar:
            for file, content in files.items():
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                info = tarfile.TarInfo(file)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path

    return write
