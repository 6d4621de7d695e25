"""Tests the first line of an error's text, also of errors without one."""

import pytest

from engine.io.error_line import first_line, first_line_with_type


@pytest.mark.parametrize(
    ("error", "line", "with_type"),
    [
        (OSError(), "OSError", "OSError"),
        (ValueError(" \n"), "ValueError", "ValueError"),
        (ValueError("no file"), "no file", "ValueError: no file"),
        (RuntimeError("\n first \nsecond"), "first ", "RuntimeError: first "),
    ],
)
def test_an_error_is_shortened_to_its_first_line(error, line, with_type):
    assert first_line(error) == line
    assert first_line_with_type(error) == with_type
