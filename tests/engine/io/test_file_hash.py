"""Tests hashes of whole files and of sampled blocks."""

import zlib
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.io.file_hash import crc32_file, hash_file, hash_samples


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 21) + 5])
def test_hashes_are_those_of_the_whole_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    path.write_bytes(content)
    assert hash_file(path) == sha256(content).hexdigest()
    assert crc32_file(path) == zlib.crc32(content)


@given(size=st.integers(1, 300), blocks=st.integers(2, 8), block=st.integers(1, 40), data=st.data())
def test_samples_find_a_change_of_their_blocks(
    tmp_path_factory: pytest.TempPathFactory, size: int, blocks: int, block: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "samples"
    path.write_bytes(bytes(size))
    before = hash_samples(path, blocks, block)
    last = max(0, size - block)
    sampled = {
        start + offset
        for number in range(blocks)
        for start in [last * number // (blocks - 1)]
        for offset in range(block)
        if start + offset < size
    }
    assert {0, size - 1} <= sampled
    assert size > blocks * block or len(sampled) == size
    changed = data.draw(st.integers(0, size - 1))
    path.write_bytes(bytes(changed) + b"\1" + bytes(size - changed - 1))
    assert (hash_samples(path, blocks, block) != before) == (changed in sampled)
    path.write_bytes(bytes(size + 1))
    assert hash_samples(path, blocks, block) != before, "another size"
