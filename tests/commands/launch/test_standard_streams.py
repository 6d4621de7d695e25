"""A broken console neither stops a command nor changes its exit code."""

import os
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

from commands.launch.standard_streams import tolerate_broken_console
from tests.conftest import REPOSITORY

PROGRAM = """
import os, sys, tempfile
from commands.launch.standard_streams import open_closed_descriptors, tolerate_broken_console
open_closed_descriptors()
with tempfile.TemporaryFile() as file:
    assert file.fileno() > 2, "messages of libraries would be written into the file"
assert all(map(os.get_inheritable, range(3))), "loader workers would have them closed"
with tolerate_broken_console():
    for stream in (sys.stdout, sys.stderr):
        print("x" * 100_000, file=stream)
        print("a line without an end", end="", file=stream)
        os.write(stream.fileno(), b"written below Python")
print("after the command", flush=True)
print("and not flushed")
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the shells of Windows redirect differently")


def run(redirection: str, **streams: int) -> int:
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, PROGRAM]
    return subprocess.run(command, cwd=REPOSITORY, timeout=60, **streams).returncode


@pytest.mark.parametrize("redirection", [">/dev/full 2>&1", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_finished_command_exits_with_0(redirection):
    assert run(redirection) == 0


def test_a_closed_pipe_is_no_failure():
    read, write = os.pipe()
    os.close(read)
    try:
        assert run("", stdout=write) == run("", stderr=write) == run("", stdout=write, stderr=write) == 0
    finally:
        os.close(write)


def test_text_arrives_while_the_console_works():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPOSITORY, timeout=60, capture_output=True, text=True, check=True
    )
    assert result.stdout.count("x") == result.stderr.count("x") == 100_000
    assert result.stdout.endswith("after the command\nand not flushed\n")


def output_of(command: str, **environment: str) -> str:
    program = f"import os\nfrom commands.launch.standard_streams import tolerate_broken_console\n{command}"
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


def test_a_full_pipe_that_does_not_block_loses_nothing():
    """A program that shares the pipe, such as node, may have set it so."""
    command = "os.set_blocking(1, False)\nwith tolerate_broken_console():\n    print('x' * 300_000)"
    assert output_of(command) == "x" * 300_000 + "\n"


def test_a_character_that_the_encoding_lacks_is_escaped():
    command = "with tolerate_broken_console():\n    print('\\xe9', os.fsdecode(b'\\xff'))"
    assert output_of(command, PYTHONIOENCODING="ascii") == "\\xe9 \\udcff\n"
    assert output_of(command, PYTHONIOENCODING="utf-8") == "é \\udcff\n"


def test_a_console_of_windows_is_written_as_before(monkeypatch):
    """Bytes that are written below it are read in its code page: tables and bars would be unreadable."""
    outer, inner = os.openpty()
    with open(outer, "rb"), open(inner, "w") as console:
        monkeypatch.setattr(sys, "stdout", console)
        monkeypatch.setattr(sys, "platform", "win32")
        with tolerate_broken_console():
            assert sys.stdout is console
        monkeypatch.undo()
        with redirect_stdout(console), tolerate_broken_console():
            assert sys.stdout is not console
