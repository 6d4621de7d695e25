"""A record begins on a line of its own, whatever a killed process has left in the file."""

import os

import pytest

from engine.telemetry.append_file import AppendOnlyFile


@pytest.mark.parametrize(
    ("left", "has_lines", "expected"),
    [
        (b"", True, b"new\n"),
        (b"old\n", True, b"old\nnew\n"),
        (b"ol", True, b"ol\nnew\n"),
        (b"ol", False, b"olnew\n"),
    ],
)
def test_an_incomplete_line_is_ended(tmp_path, left, has_lines, expected):
    path = tmp_path / "records"
    path.write_bytes(left)
    file = AppendOnlyFile(path, has_lines=has_lines)
    file.write("new\n")
    file.close()
    assert path.read_bytes() == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
def test_a_pipe_takes_records(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        file = AppendOnlyFile(path)
        file.write("new\n")
        assert os.read(reader, 100) == b"new\n"
        file.close()
    finally:
        os.close(reader)
