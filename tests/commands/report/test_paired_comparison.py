"""`report A B` reports which of two recommenders is better, or why it cannot decide."""

import subprocess
import sys

import numpy as np
import pytest

from commands.report.comparison.paired_comparison import compare_runs
from commands.report.main import main
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, UserRanks, encode
from tests.commands.report.recorded import Recorded
from tests.conftest import REPOSITORY

USERS = [f"u{number:03}" for number in range(200)]
FAR, NEAR = np.full(200, 50), np.where(np.arange(200) % 2, 1, 50)


def keep(runs, name, rank, stage="test", protocol="", users=USERS, targets=None, candidates=60):
    folder = runs / name
    if not folder.exists():
        Recorded(folder)
    size = len(users)
    ranks = UserRanks(
        RankHeader(stage, protocol, 26, 40, 3),
        users,
        targets or ["item"] * size,
        np.full(size, 5),
        np.full(size, 9),
        np.asarray(rank)[:size],
        np.full(size, candidates),
    )
    (folder / f"ranks-{stage}.npz").write_bytes(encode(ranks))


def test_the_better_run_is_named(runs, report_lines):
    keep(runs, "a", FAR)
    keep(runs, "b", NEAR)
    assert report_lines("a", "b") == [
        "test, 200 users: b is better than a by ndcg@10, hr@10 and mrr@10",
        "b minus a: ndcg@10 +0.5000 [+0.4300, +0.5700], p < 0.001; hr@10 +0.5000 [+0.4300, +0.5700], p < 0.001; "
        "mrr@10 +0.5000 [+0.4300, +0.5700], p < 0.001 (95 % bootstrap interval, permutation test)",
    ]
    first, numbers = report_lines("b", "a")
    assert first == "test, 200 users: b is better than a by ndcg@10, hr@10 and mrr@10"
    assert numbers.startswith("a minus b: ndcg@10 -0.5000 [-0.5700, -0.4300], p < 0.001; hr@10 -0.5000")
    page = (runs / "report.html").read_text(encoding="utf-8")
    assert "b is better than a by ndcg@10" in page


def test_a_small_difference_is_not_significant(runs, report_lines):
    keep(runs, "a", FAR)
    keep(runs, "b", np.where(np.arange(200) < 3, 2, 50))
    first, numbers = report_lines("a", "b")
    assert first == "test, 200 users: no significant difference between a and b by ndcg@10, hr@10 and mrr@10"
    assert "hr@10 +0.0150 [+0.0000, +0.0350], p = 0.2" in numbers, "the exact p is 1/4"


def test_metrics_that_disagree_are_reported(runs, report_lines):
    """a hits more users, b has them at the first rank."""
    order = np.arange(200)
    keep(runs, "a", np.where(order < 100, 10, 50))
    keep(runs, "b", np.where(order < 60, 1, 50))
    first, _ = report_lines("a", "b")
    assert first == "test, 200 users: b is better than a by ndcg@10 and mrr@10; a is better than b by hr@10"
    keep(runs, "b", np.where(order < 98, 1, 50))
    first, _ = report_lines("a", "b")
    assert first == (
        "test, 200 users: b is better than a by ndcg@10 and mrr@10; the difference is not significant by hr@10"
    )


def test_the_protocol_of_the_metrics_is_named(runs, report_lines):
    for name, rank in (("a", FAR), ("b", NEAR)):
        keep(runs, name, rank, stage="val", protocol="request_time")
    first, numbers = report_lines("a", "b")
    assert first.startswith("validation, 200 users: b is better than a by request_time/ndcg@10, request_time/hr@10")
    assert numbers.startswith("b minus a: request_time/ndcg@10 +0.5")


OTHER = ["x1", *USERS[1:]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "request_time"}, "a is evaluated with the past alone and b with the time of the request, which"),
        (
            {"users": OTHER},
            "the runs evaluate different users: 1 of a alone ('u000', ...) and 1 of b alone ('x1', ...)",
        ),
        ({"users": USERS[:10]}, "the runs evaluate different users: 190 of a alone ('u010', ...) and 0 of b alone"),
        (
            {"targets": ["other", *["item"] * 198, "else"]},
            "2 of 200 users have different held-out items: user 'u000' has 'item' in a and 'other' in b",
        ),
        (
            {"candidates": 61},
            "the runs rank different numbers of items: for user 'u000' 60 in a and 61 in b. model.",
        ),
    ],
)
def test_other_tasks_are_not_compared(runs, report_lines, changes, message):
    keep(runs, "a", FAR)
    keep(runs, "b", NEAR, **changes)
    (line,) = report_lines("a", "b")
    assert line.startswith(f"no paired test: {message}")
    assert (runs / "report.html").is_file()


def test_without_ranks_there_are_no_lines_and_with_one_file_there_is_advice(runs, report_lines):
    for name in "a", "b":
        Recorded(runs / name)
    assert report_lines("a", "b") == []
    keep(runs, "a", FAR)
    assert report_lines("a", "b") == [
        "no paired test: b has no ranks; `python train.py test --run_name b` writes ranks-test.npz"
    ]
    keep(runs, "b", FAR, stage="val")
    assert "b has ranks-val.npz; `python train.py test --run_name b`" in report_lines("a", "b")[0]
    keep(runs, "a", FAR, stage="val")
    assert report_lines("a", "b")[0].startswith("validation, 200 users: no significant difference")
    Recorded(runs / "c")
    assert report_lines("a", "b", "c")[2:] == [
        "no paired test: c has no ranks; `python train.py validate --run_name c` writes ranks-val.npz"
    ]


def test_a_run_of_another_family_has_no_advice(runs, report_lines):
    keep(runs, "a", FAR)
    config = Recorded(runs / "b").folder / "config.yaml"
    config.write_text(config.read_text().replace("lightning_modules.recommender", "lightning_modules.image_classifier"))
    assert report_lines("a", "b") == [
        "no paired test: b is of the family image_classifier, the others are of recommender"
    ]


def test_of_several_runs_each_is_compared_with_the_first(runs, report_lines):
    keep(runs, "a", FAR)
    keep(runs, "b", NEAR)
    keep(runs, "c", np.where(np.arange(200) < 7, 10, 50))
    keep(runs, "other", FAR, users=USERS[:-1])
    lines = report_lines("a", "b", "c", "other")
    assert lines[0] == "test, 200 users: b is better than a by ndcg@10, hr@10 and mrr@10"
    assert "hr@10 +0.5000 [+0.4300, +0.5700], p < 0.001" in lines[1]
    assert "adjusted by Holm's method" in lines[1]
    # Alone, c has p = 2 / 2^7 = 0.016; the smaller p-value of b counts twice, that of c once.
    assert lines[2] == "test, 200 users: c is better than a by ndcg@10, hr@10 and mrr@10"
    assert "hr@10 +0.0350" in lines[3]
    assert "p = 0.01" in lines[3]
    assert lines[4].startswith("no paired test: the runs evaluate different users: 1 of a alone")
    compared = compare_runs([runs / name for name in "abc"])
    values = [row["values"][1][0] for row in compared.table["rows"]]
    assert values == [0.5, 0.5, 0.5]
    assert compared.table["rows"][0]["differences"][0] is None
    assert compared.differing["count"] == 104
    assert len(compared.differing["rows"]) == 20
    assert compared.differing["rows"][0] == ["u001", "item", "5", "50", "1", "10"]


def test_ranks_of_a_test_with_other_settings_are_not_compared(runs, report_lines):
    for name in "a", "b":
        keep(runs, name, NEAR)
    run = Recorded(runs / "c")
    keep(runs, "c", NEAR)
    run.metrics(26, test__ndcg_at_10=0.5)
    assert report_lines("a", "c")[0].startswith("test, 200 users: no significant difference")
    run.metrics(26, test__ndcg_at_10=0.7, altered="trainer.limit_test_batches")
    assert report_lines("a", "c")[0].startswith("test, 200 users: no significant difference")
    run.metrics(26, test__ndcg_at_10=0.6)
    assert report_lines("a", "c") == [
        "no paired test: runs/c/ranks-test.npz has test/ndcg@10 0.5000 and metrics.jsonl 0.6000, because the latest "
        "test had other settings than the run; `python train.py test --run_name c` writes the ranks again"
    ]


def test_a_truncated_file_is_an_error_of_three_lines(runs, capsys):
    for name in "a", "b":
        keep(runs, name, FAR)
    file = runs / "b" / "ranks-test.npz"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(SystemExit) as end:
        main(["a", "b"])
    assert end.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert "runs/b/ranks-test.npz: found File is not a zip file" in lines[0]
    assert lines[2] == "write them again with `python train.py test --run_name b`"


def test_runs_of_one_name_are_distinguished_by_their_folders(runs, report_lines, monkeypatch):
    keep(runs, "a", FAR)
    keep(runs.parent / "other", "a", NEAR)
    assert report_lines("runs/a", "other/a")[0] == (
        "test, 200 users: other/a is better than runs/a by ndcg@10, hr@10 and mrr@10"
    )


def test_the_comparison_needs_neither_torch_nor_lightning(runs):
    for name in "a", "b":
        keep(runs, name, FAR)
    program = (
        f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from commands.report.main import main; main(['a', 'b'])\n"
        "print('heavy:', sorted({'torch', 'lightning', 'numpy', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=runs.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: ['numpy']"
