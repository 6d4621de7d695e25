"""Tests the list of checksums of a directory: any changed, missing or renamed file is found, by sha256sum as well."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.io.checksum_file import CHECKSUM_FILE, verify_checksums, write_checksums


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "model.bin").write_bytes(bytes(range(256)))
    (tmp_path / "inner" / "two words é.json").write_text("{}")
    (tmp_path / "empty").touch()
    write_checksums(tmp_path)
    return tmp_path


def test_the_list_is_in_the_format_of_sha256sum(folder):
    verify_checksums(folder)
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", CHECKSUM_FILE], cwd=folder, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.splitlines() == ["empty: OK", "inner/two words é.json: OK", "model.bin: OK"]


def test_files_that_are_not_listed_may_change(folder):
    (folder / "README.md").write_text("a card that a user has edited")
    verify_checksums(folder)
    write_checksums(folder)  # a second list does not contain itself
    verify_checksums(folder)


def test_a_directory_without_a_list_passes(tmp_path):
    verify_checksums(tmp_path)


@given(position=st.integers(0, 255), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found(tmp_path_factory, position, bit):
    folder = tmp_path_factory.mktemp("export")
    content = bytearray(range(256))
    (folder / "model.bin").write_bytes(content)
    write_checksums(folder)
    content[position] ^= 1 << bit
    (folder / "model.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"model.bin: found [0-9a-f]{12}, expected the SHA-256 40aff2e9d2d8 of"):
        verify_checksums(folder)


def test_a_list_of_sha256sum_in_binary_mode_is_read(folder):
    lines = (folder / CHECKSUM_FILE).read_text().replace("  ", " *", 1).upper().replace("MODEL.BIN", "model.bin")
    (folder / CHECKSUM_FILE).write_text(next(line for line in lines.split("\n") if "model.bin" in line) + "\n")
    verify_checksums(folder)


def test_a_missing_file_is_named(folder):
    (folder / "empty").unlink()
    with pytest.raises(ValueError, match="empty: found no file, expected the SHA-256"):
        verify_checksums(folder)


@pytest.mark.parametrize("line", [b"short  model.bin\n", b"0" * 64 + b" model.bin\n", b"\n", b"\xff\n"])
def test_a_damaged_list_is_refused_by_its_line(folder, line):
    (folder / CHECKSUM_FILE).write_bytes(line)
    with pytest.raises(ValueError, match=f"{CHECKSUM_FILE}(, line 1)?: found .*copy the directory again"):
        verify_checksums(folder)
