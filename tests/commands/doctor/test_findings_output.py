"""Checks the doctor's output: the table, the JSON object and the exit code."""

import io
import json

import pytest

from commands.doctor.check import Finding
from commands.doctor.findings_output import findings_as_json, print_table, worst_status

OK = Finding("python", "ok", "3.11.7")
WARN = Finding("threads", "warn", "OMP_NUM_THREADS=8 with [4] processes", "they take " + "turns " * 40, "export A=1")
FAIL = Finding("shared memory", "fail", "64 MiB", "a loader dies with `Bus error`", "docker run --shm-size=8g")


@pytest.mark.parametrize(
    ("findings", "status", "code"),
    [([], "ok", 0), ([OK], "ok", 0), ([OK, WARN], "warn", 1), ([FAIL, OK, WARN], "fail", 2)],
)
def test_the_worst_finding_sets_status_and_exit_code(findings, status, code):
    assert worst_status(findings) == status
    report = json.loads(findings_as_json(findings))
    assert (report["status"], report["exit_code"]) == (status, code)
    assert [Finding(**finding) for finding in report["findings"]] == findings
    assert sum(report["counts"].values()) == len(findings)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_is_grouped_fits_and_tells_all_but_why_all_is_well(width):
    output = io.StringIO()
    print_table([FAIL, OK._replace(why="nobody needs this"), WARN], output, width)
    text = output.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert text.index("OK  1") < text.index("WARN  1") < text.index("FAIL  1")  # the worst stands above the prompt
    for words in ("3.11.7", "with [4] processes", "why: they take", "fix: export A=1", "docker run --shm-size=8g"):
        assert words in text
    assert text.count("turns") == 40
    assert "nobody needs this" not in text
    assert text.rstrip().endswith("1 OK, 1 WARN, 1 FAIL; exit code 2.") or width < 120


def test_a_file_has_lines_of_120_columns_by_default(monkeypatch):
    def longest() -> int:
        output = io.StringIO()
        print_table([WARN], output)
        return max(map(len, output.getvalue().splitlines()))

    monkeypatch.delenv("COLUMNS", raising=False)
    assert longest() == 120
    monkeypatch.setenv("COLUMNS", "90")
    assert longest() == 90
