"""Tests that every row of a CSV file is read, or a message names the file and the line."""

import gzip
import math
import resource

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datamodules.temporal.timelines.channels import KEYS
from datamodules.temporal.timelines.recorded import csv_file
from datamodules.temporal.timelines.recorded.csv_file import read_csv
from engine.io import json_records

HEADER = "time_ms,cpu_cores,gpu_sm\n"
GOOD = (HEADER + "".join(f"{100 * step},{step % 8},{(7 * step) % 100}.5\n" for step in range(20))).encode()


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(ValueError) as error:
        read_csv(path)
    message = str(error.value)
    assert message.startswith(str(path))
    assert message.count("\n") < 3
    assert len(message) < 1000
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (GOOD.replace(b"\n300,", b"\n301,"), ", line 5, time_ms: found a step of 101 ms, but most steps are 100 ms"),
        (GOOD.replace(b"\n300,", b"\n201,"), ", line 5, time_ms: found a step of 1 ms, but most steps are 100 ms"),
        (GOOD.replace(b"\n300,", b"\n150,"), ", line 5, time_ms: found a step of -50 ms, expected times to go up"),
        (GOOD.replace(b"\n300,", b"\n200,"), ", line 5, time_ms: found a step of 0 ms, expected times to go up"),
        (GOOD.replace(b"\n1900,", b"\n1e12,"), ", line 21, time_ms: found a gap of 1e+12 ms"),
        (GOOD.replace(b"\n1900,", b"\n1e300,"), ", line 21, time_ms: found '1e300', expected a number of milliseconds"),
        (GOOD.replace(b"300,3", b"300,many"), ", line 5, cpu_cores: found 'many', expected a number"),
        (GOOD.replace(b"300,3", b"300,1_0"), ", line 5, cpu_cores: found '1_0', expected a number"),
        (GOOD.replace(b"300,3", b"300,1e12"), ", line 5, cpu_cores: found 1e+12, expected 0 to 1e+09"),
        (GOOD.replace(b"300,3", b"300,3,"), ", line 5: found 4 cells, expected 3"),
        (GOOD.replace(b"300,3", b",3"), ", line 5, time_ms: found '', expected a number of milliseconds"),
        (GOOD.replace(b".5\n300,", b".5300,"), ", line 4: found 5 cells, expected 3"),
        (GOOD[:-6], ", line 21: found 2 cells, expected 3"),
        (GOOD.replace(b"\n300,", b'\n"300,'), ", line 5: found '\"300,3,21.5', quotes that are not closed"),
        (GOOD.replace(b"300,3", b'300,"3"3'), ", line 5: found '300,\"3\"3,21.5', text after the quotes of a field"),
        (GOOD.replace(b"300,3", b"300,3\0"), ", line 5: found a NUL byte in '300,3\\x00,21.5'"),
        (GOOD.replace(b"300,3", b"300,\xe9"), ", line 5: found the byte 0xe9, which is not UTF-8, at position 4"),
        (gzip.compress(GOOD, mtime=0), ": found gzip, expected a CSV file"),
        (GOOD.decode().encode("utf-16"), ": found UTF-16, expected a CSV file"),
        (b"", ": found an empty file"),
        (b"\n \n", ": found an empty file"),
        (GOOD.replace(b",", b";"), ", line 1: found the columns time_ms;cpu_cores;gpu_sm, expected time_ms"),
        (b"\x1b[2J" + GOOD, ", line 1: found the columns '\\x1b[2Jtime_ms, cpu_cores, gpu_sm', expected time_ms"),
        (b"x" * 5000 + GOOD, ", line 1: found the columns xxx"),
    ],
)
def test_a_defect_is_named_with_its_line(tmp_path, data, messages):
    assert messages in refused(tmp_path / "node.csv", data)


@pytest.mark.parametrize(
    "data",
    [
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + GOOD,
        GOOD.rstrip(b"\n"),
        GOOD.replace(b"\n", b"\n\n"),
        GOOD.replace(b",", b" , "),
        b"".join(b",".join(b'"%s"' % cell for cell in line.split(b",")) + b"\n" for line in GOOD.splitlines()),
    ],
    ids=["crlf", "cr", "bom", "no_last_line_end", "blank_lines", "spaces", "quoted"],
)
def test_other_forms_of_the_file_are_the_same_rows(tmp_path, data):
    (tmp_path / "a.csv").write_bytes(GOOD)
    (tmp_path / "b.csv").write_bytes(data)
    np.testing.assert_array_equal(read_csv(tmp_path / "a.csv").shares, read_csv(tmp_path / "b.csv").shares)


def test_a_line_without_end_is_read_up_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_records, "MAX_LINE_BYTES", 1000)
    output = refused(tmp_path / "node.csv", GOOD.splitlines()[0] + b"\n" + b"1" * 100_000)
    assert ", line 2: found more than 1,000 bytes without a line end" in output


def test_rows_beyond_the_limit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_file, "_MAX_STEPS", 19)
    assert ", line 21: found more than 19 rows" in refused(tmp_path / "node.csv", GOOD)


def test_far_stamps_take_no_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(tmp_path / "node.csv", HEADER.encode() + b"0,1,1\n1,1,1\n2,1,1\n4000000000,1,1\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


def reference(data):
    """Values of each row by its time, of a file without gaps in its format."""
    lines = [line for line in data.decode("utf-8-sig").split("\n") if line.strip()]  # splitlines also splits at \v
    names = [name.strip().strip('"') for name in lines[0].split(",")]
    cells = [[cell.strip().strip('"') for cell in line.split(",")] for line in lines[1:]]
    rows = [dict(zip(names, [float(cell) if cell else math.nan for cell in row], strict=True)) for row in cells]
    return {row["time_ms"]: row for row in rows}, len(rows)


byte_edits = st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 3), st.binary(max_size=3))
line_edits = st.tuples(st.sampled_from(["drop", "twice", "swap", "join", "cut"]), st.integers(1, 19))


def edited(data, edits):
    for edit in edits:
        if isinstance(edit[0], int):
            at, removed, inserted = edit
            data = data[:at] + inserted + data[at + removed :]
            continue
        (kind, at), lines = edit, data.split(b"\n")
        at = min(at, len(lines) - 2)
        if kind == "drop":
            del lines[at]
        elif kind == "twice":
            lines.insert(at, lines[at])
        elif kind == "swap":
            lines[at], lines[at + 1] = lines[at + 1], lines[at]
        elif kind == "join":
            lines[at : at + 2] = [lines[at] + lines[at + 1]]
        else:
            lines[at] = lines[at][: len(lines[at]) // 2]
        data = b"\n".join(lines)
    return data


@settings(max_examples=80, deadline=None)
@given(st.lists(byte_edits | line_edits, min_size=1, max_size=3))
@example([(68, 0, b"\x0b")])
def test_any_edit_gives_the_rows_of_the_file_or_one_message(tmp_path_factory, edits):
    path, data = tmp_path_factory.getbasetemp() / "edited.csv", edited(GOOD, edits)
    path.write_bytes(data)
    try:
        recording = read_csv(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
        assert str(error).count("\n") < 3
        return
    rows, number = reference(data)
    assert len(rows) == number, "two rows of one time"
    start = min(rows)
    for time, row in rows.items():
        found = recording.shares[round((time - start) / recording.step_ms)] * recording.capacities
        np.testing.assert_allclose(found, [row.get(key, math.nan) for key in KEYS])


def test_irregular_times_are_resampled_on_request(tmp_path):
    """Multiples of 10 s, most of them 300 s apart: refused without a step, with one they are not mostly missing."""
    times = np.cumsum([0, *[290, 300, 310, 300, 250, 350] * 6]) * 1000
    rows = "".join(f"{time},{10 + k % 5}\n" for k, time in enumerate(times))
    (tmp_path / "node.csv").write_text("time_ms,gpu_sm\n" + rows)
    with pytest.raises(ValueError, match="node.csv, line 3, time_ms: .*set data.init_args.timelines_step_ms"):
        read_csv(tmp_path / "node.csv")
    found = read_csv(tmp_path / "node.csv", step_ms=300_000)
    column = found.shares[:, 2] * found.capacities[2]
    assert found.step_ms == 300_000
    assert len(column) == 37
    np.testing.assert_allclose(column, [10 + k % 5 for k in range(37)])
    assert np.isnan(found.shares[:, 0]).all()
    with pytest.raises(ValueError, match="node.csv, from line 2, time_ms in seconds: .*expected at most"):
        read_csv(tmp_path / "node.csv", step_ms=1)


def test_a_last_line_without_an_end_is_read_with_a_warning(tmp_path, monkeypatch, caplog):
    """A value that was cut off is often another valid value."""
    monkeypatch.setattr("engine.io.unterminated_line._warned", set())
    path = tmp_path / "machine.csv"
    path.write_bytes(GOOD)
    recording = read_csv(path).shares
    assert not caplog.records
    path.write_bytes(GOOD[:-1])
    np.testing.assert_array_equal(read_csv(path).shares, recording)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{path}: the last line has no line end")
