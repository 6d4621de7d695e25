"""Runs of the language families and of the image classifier are compared by their answers to the same samples."""

import json

import pytest

from commands.report.comparison.paired_comparison import compare_runs
from commands.report.main import main
from engine.telemetry.graded_answers import FILE, GradedAnswer, write_graded_answers
from tests.commands.report.recorded import Recorded


def keep(runs, name, points, metric="test/accuracy", question="question {}"):
    folder = runs / name
    if not folder.exists():
        Recorded(folder)
    answers = [
        GradedAnswer(sample, question.format(sample), "yes", "yes" if share == 1 else "", share)
        for sample, share in enumerate(points)
    ]
    write_graded_answers(folder, metric, reversed(answers))


def test_two_runs_are_compared_by_the_exact_test_of_mcnemar(runs, report_lines):
    keep(runs, "a", [1, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    keep(runs, "b", [0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    first, numbers = report_lines("a", "b")
    assert first == "test, 10 answers: b is better than a by accuracy"
    # 8 of 9 discordant answers: p = 2 * (1 + 9) / 2^9.
    assert numbers.startswith("b minus a: accuracy +0.7000 [")
    assert "p = 0.039 (95 % bootstrap" in numbers
    assert "exact McNemar test" in numbers
    assert "b is better than a by accuracy" in (runs / "report.html").read_text(encoding="utf-8")
    compared = compare_runs([runs / "a", runs / "b"])
    assert compared.differing["count"] == 9
    assert compared.differing["rows"][0] == ["0", "question 0", "yes", "✓ yes", "✗ (nothing)"]


def test_parts_of_points_are_compared_by_permutations(runs, report_lines):
    keep(runs, "a", [0.5] * 20)
    keep(runs, "b", [0.75] * 20)
    keep(runs, "c", [0.5] * 20)
    lines = report_lines("a", "b", "c")
    assert lines[0] == "test, 20 answers: b is better than a by accuracy"
    assert "permutation test" in lines[1]
    assert lines[2] == "test, 20 answers: no significant difference between a and c by accuracy"
    assert "accuracy +0.0000 [+0.0000, +0.0000], p = 1.000" in lines[3]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"points": [1, 0, 1]}, "a is tested on 2 samples and b on 3"),
        ({"metric": "test/exact"}, "a is tested by test/accuracy and b by test/exact"),
        ({"question": "another {}"}, "different samples: sample 0 is 'question 0' with the answer 'yes' in a, and 'an"),
    ],
)
def test_other_tasks_are_not_compared(runs, report_lines, change, message):
    keep(runs, "a", [1, 0])
    keep(runs, "b", **{"points": [1, 0], **change})
    (line,) = report_lines("a", "b")
    assert line.startswith("no paired test: ")
    assert message in line


def test_answers_of_another_test_are_not_compared(runs, report_lines):
    for name in ("a", "b"):
        keep(runs, name, [1, 0])
    run = Recorded(runs / "c")
    keep(runs, "c", [1, 0])
    run.metrics(10, test__accuracy=0.5)
    assert report_lines("a", "c")[0].startswith("test, 2 answers: no significant difference")
    run.metrics(10, test__accuracy=0.9)
    (line,) = report_lines("a", "c")
    assert "has test/accuracy 0.5000 and metrics.jsonl 0.9000, because the latest test had other settings" in line


@pytest.mark.parametrize("corrupt", [b"{", b"", b'{"version": 2, "metric": "test/accuracy"}\n', b'{"sample": 0}\n'])
def test_a_changed_file_is_named(runs, capsys, corrupt):
    for name in ("a", "b"):
        keep(runs, name, [1, 0])
    file = runs / "b" / FILE
    file.write_bytes(corrupt if corrupt.endswith(b"\n") or not corrupt else file.read_bytes()[:-5])
    with pytest.raises(SystemExit) as end:
        main(["a", "b"])
    assert end.value.code == 2
    assert f"runs/b/{FILE}: found " in capsys.readouterr().err


def test_the_file_is_the_same_in_any_order(tmp_path):
    answers = [GradedAnswer(2, "q" * 900, "a", "b\ud800", 0.0, 2.0), GradedAnswer(1, "é", "a", "b", 1.0)]
    write_graded_answers(tmp_path / "x", "test/exact", answers)
    write_graded_answers(tmp_path / "y", "test/exact", answers[::-1])
    text = (tmp_path / "x" / FILE).read_text(encoding="utf-8")
    assert text == (tmp_path / "y" / FILE).read_text(encoding="utf-8")
    header, first, second = map(json.loads, text.splitlines())
    assert header == {"version": 1, "metric": "test/exact"}
    assert first["question"] == "é"
    assert len(second["question"]) == 500
    assert second["possible"] == 2.0
    assert write_graded_answers(tmp_path / "z", "test/exact", []) is None
