"""Tests that `report RUN` prints a recommender's metrics by group."""

import json
import re

import numpy as np
import pytest

from commands.report.main import main
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, Recommended, UserRanks, encode
from lightning_modules.recommender.item_ranks.rank_metrics import gains, metric_intervals
from lightning_modules.recommender.item_ranks.recommendation_metrics import recommendation_metrics
from tests.commands.report.recorded import Recorded

RANK = np.random.default_rng(0).integers(1, 40, 100)
HISTORY, POPULARITY = np.arange(100) // 25, np.arange(100) % 50


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Recorded(tmp_path / "runs" / "a")


RECOMMENDED = Recommended(np.random.default_rng(1).integers(0, 31, (100, 5)), np.arange(30))


def keep(run, stage="test", protocol="", recommended=None):
    users, header = [f"u{user:03}" for user in range(100)], RankHeader(stage, protocol, 26, 40, 3)
    ranks = UserRanks(header, users, ["item"] * 100, HISTORY, POPULARITY, RANK, np.full(100, 40), recommended)
    (run.folder / f"ranks-{stage}.npz").write_bytes(encode(ranks))


def printed(capsys, *options):
    main(["a", *options])
    return capsys.readouterr().out.splitlines()[1:]


def cells(line):
    return [cell for cell in re.split(r"  +", line.strip()) if cell]


def test_metrics_of_each_group_are_printed_with_intervals(run, capsys):
    keep(run)
    title, heads, _, *rows = [line for line in printed(capsys) if line.strip()]
    assert title.startswith("test by events of the history and training events of the target, with 95 % bootstrap")
    assert cells(heads) == ["users", "ndcg@10", "hr@10", "mrr@10"]
    found = {cells(row)[0]: cells(row)[1:] for row in rows}
    assert list(found) == [
        "all users",
        *(f"history: {events} events" for events in range(4)),
        "head targets: 40 or more",
        "middle targets: 4 to 39",
        "tail targets: 3 or fewer",
    ]
    for name, own in (
        ("all users", HISTORY < 9),
        ("history: 2 events", HISTORY == 2),
        ("tail targets: 3 or fewer", POPULARITY <= 3),
    ):
        intervals = metric_intervals(RANK[own], gains((10,))).values()
        assert found[name] == [
            str(own.sum()),
            *(f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in intervals),
        ]
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert json.dumps(["all users", *found["all users"]], separators=(",", ":")) in page


def test_cutoffs_select_the_metrics_and_a_test_is_preferred(run, capsys):
    keep(run, stage="val", protocol="request_time")
    lines = printed(capsys, "--cutoffs", "3", "100")
    heads = [cells(line) for line in lines if "users" in line and "ndcg" in line]
    assert heads == [["users", *(f"request_time/{name}@{k}" for name in ("ndcg", "hr", "mrr"))] for k in (3, 100)]
    assert sum("validation by events" in line for line in lines) == 2
    assert "1.0000 [1.0000, 1.0000]" in next(line for line in reversed(lines) if "all users" in line), "all are hits"
    keep(run)
    assert any("test by events" in line for line in printed(capsys)), "a test is preferred"


def test_recommended_items_have_metrics_at_each_cutoff_and_of_each_group(run, capsys):
    keep(run, protocol="request_time", recommended=RECOMMENDED)
    lines = printed(capsys, "--cutoffs", "2", "5", "9")
    names = ("coverage", "novelty", "popularity")
    heads = [index for index, line in enumerate(lines) if "users" in line and "coverage" in line and "@" in line]
    assert [cells(lines[head]) for head in heads] == [
        ["users", *(f"request_time/{name}@{k}" for name in names)] for k in (2, 5)
    ]
    assert [line for line in lines if "coverage is no mean over users" in line]
    for head, k in zip(heads, (2, 5), strict=True):
        rows = {cells(line)[0]: cells(line)[1:] for line in lines[head + 2 : head + 10]}
        for name, own in (("all users", HISTORY < 9), ("history: 2 events", HISTORY == 2)):
            coverage, novelty, popularity = recommendation_metrics(RECOMMENDED, np.flatnonzero(own), k)
            assert rows[name] == [
                str(own.sum()),
                f"{coverage:.4f}",
                "{:.2f} [{:.2f}, {:.2f}]".format(*novelty),
                "{:.1f} [{:.1f}, {:.1f}]".format(*popularity),
            ]
    assert lines[-1] == (
        "no coverage, novelty and popularity at 9: the evaluation kept the best 5 items of each user; test again "
        "with a larger model.init_args.top_k, at most the number of items"
    )


def test_ranks_that_are_absent_print_nothing_and_ranks_of_other_settings_a_remark(run, capsys):
    assert printed(capsys) == []
    keep(run)
    run.metrics(26, test__ndcg_at_10=0.9)
    (line,) = printed(capsys)
    assert line.startswith("no metrics by group: runs/a/ranks-test.npz has test/ndcg@10 0.")
    assert "metrics.jsonl 0.9000, because the latest test had other settings than the run" in line


@pytest.mark.parametrize("value", ["0", "-1", "ten", "1001", "²"])
def test_a_wrong_cutoff_is_refused(run, capsys, value):
    with pytest.raises(SystemExit) as end:
        main(["a", f"--cutoffs={value}"])
    assert end.value.code == 2
    assert f"expected an integer from 1 to 1000, found {value!r}" in capsys.readouterr().err
