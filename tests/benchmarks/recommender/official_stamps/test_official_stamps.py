"""Tests the groups of users by filled-in time stamps on a small made-up file."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recommender.official_stamps.__main__ import main
from benchmarks.recommender.official_stamps.user_stamps import read_user_stamps
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, UserRanks, encode

# (user, item, rating, time). Items 7, 8 and 9 have at least five rows; item 5 is dropped, and its mark with it.
ROWS = [
    (1, 9, 4, 30), (1, 7, 5, 10), (1, 8, 3, 20), (1, 5, 0, 15),
    (2, 7, 0, 10), (2, 8, 2, 20), (2, 9, 1, 20),
    (3, 8, 4, 10), (3, 9, 0, 20), (3, 7, 4, 30),
    (4, 9, 4, 10), (4, 8, 4, 20), (4, 7, 0, 30),
    (5, 7, 4, 10), (5, 9, 4, 20), (5, 8, 4, 30),
]  # fmt: skip
RANKS = {"1": ("9", 1), "2": ("9", 2), "3": ("7", 20), "4": ("7", 20), "5": ("8", 20)}


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    path = tmp_path / "ratings.dat"
    path.write_text("".join("::".join(map(str, row)) + "\n" for row in ROWS))
    return path


def run(folder: Path, protocol: str = "", changed: dict[str, tuple[str, int]] | None = None) -> Path:
    folder.mkdir()
    users = RANKS | (changed or {})
    zeros = np.zeros(len(users), np.int32)
    header = RankHeader("test", protocol, step=1, head_from=2, tail_to=1)
    targets, rank = [target for target, _ in users.values()], np.array([rank for _, rank in users.values()])
    content = encode(UserRanks(header, [*users], targets, zeros, zeros, rank, zeros + 30))
    (folder / "ranks-test.npz").write_bytes(content)
    return folder


def test_marks_follow_their_rows_through_filter_and_order_of_events(ratings: Path) -> None:
    stamps = read_user_stamps(ratings)
    assert {user: found.target for user, found in stamps.items()} == {user: item for user, (item, _) in RANKS.items()}
    assert {user for user, found in stamps.items() if found.all_official} == {"1", "5"}
    assert {user for user, found in stamps.items() if found.ends_official} == {"1", "2", "5"}


@pytest.mark.parametrize("protocol", ["", "request_time"])
def test_metrics_of_each_group_are_named_as_the_protocol_names_them(
    ratings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    main(["--ratings", str(ratings), str(run(tmp_path / "a", protocol))])
    output = capsys.readouterr().out
    name = "test/request_time/" if protocol else "test/"
    assert output.startswith(f"| a | users | {name}ndcg@10, 95 % interval | {name}hr@10, 95 % interval |\n")
    found = re.findall(r"\| (\d) \| (\S+) \[.*?\] \| (\S+) \[", output)
    second = 1 / np.log2(3)
    assert found == [
        ("5", f"{(1 + second) / 5:.4f}", "0.4000"),
        ("2", "0.5000", "0.5000"),
        ("3", f"{(1 + second) / 3:.4f}", "0.6667"),
    ]


@pytest.mark.parametrize(
    ("changed", "found"),
    [({"3": ("9", 1)}, "as its last item"), ({"6": ("9", 1)}, "fewer than two events of this user")],
)
def test_ranks_of_other_data_are_refused(
    ratings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, tuple[str, int]], found: str
) -> None:
    folder = run(tmp_path / "a", changed=changed)
    with pytest.raises(SystemExit) as ended:
        main(["--ratings", str(ratings), str(folder)])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert f"{folder}/ranks-test.npz: found user '{next(iter(changed))}'" in message
    assert found in message
    assert message.count("\n") == 3
