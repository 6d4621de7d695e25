"""A number of bytes is written in the largest unit below it."""

import pytest

from engine.system.byte_size import format_bytes


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (512, "512 bytes"),
        (1536, "1.5 KiB"),
        (3 * 2**20, "3.0 MiB"),
        (40 * 2**30, "40.0 GiB"),
        (5 * 2**40, "5.0 TiB"),
        (4096 * 2**40, "4096.0 TiB"),
    ],
)
def test_bytes_are_written_in_the_largest_unit_below(number, expected):
    assert format_bytes(number) == expected
