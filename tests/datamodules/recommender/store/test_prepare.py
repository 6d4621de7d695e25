"""Tests that a store belongs to the content and the path of its source."""

import json
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.datamodule import InteractionSequences
from datamodules.recommender.reading.errors import SourceChangedError
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.interactions import Interactions
from datamodules.recommender.store import prepare
from datamodules.recommender.store.prepare import Conversion, is_prepared, prepare_store
from engine.io import content_hash

HEADER = "user_id,item_id,timestamp\n"
TIME = 1_700_000_000_000_000_000


def write(path: Path, rows: str) -> Path:
    """Write interactions with a time that is always the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + rows)
    os.utime(path, ns=(TIME, TIME))
    return path


def events(source: Path) -> list[tuple[str, str, int]]:
    """The interactions of the store of a source."""
    store = prepare_store(source, min_item_interactions=1)
    users = [user for row, user in enumerate(store.user_ids) for _ in range(*store.offsets[row : row + 2].tolist())]
    items = [store.item_ids[item - 1] for item in store.items]
    return list(zip(users, items, store.times.tolist(), strict=True))


def test_read_only_folders_with_files_of_one_name_size_and_time_have_their_own_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = write(tmp_path / "first/events.csv", "a,x,1\na,y,2\n")
    second = write(tmp_path / "second/events.csv", "b,u,1\nb,v,2\n")
    for source in (first, second):
        source.parent.chmod(0o555)
    assert events(first) == [("a", "x", 1), ("a", "y", 2)]
    assert events(second) == [("b", "u", 1), ("b", "v", 2)]
    assert events(first) == [("a", "x", 1), ("a", "y", 2)]
    assert Path("data/cache/.gitignore").exists()
    assert len([path for path in Path("data/cache").iterdir() if path.is_dir()]) == 2, "both are in the common cache"
    for source in (first, second):
        source.parent.chmod(0o755)


def test_equal_files_in_two_folders_have_two_stores_in_a_common_cache(tmp_path: Path) -> None:
    sources = [write(tmp_path / name / "events.csv", "a,x,1\n") for name in ("first", "second")]
    cache = tmp_path / "cache"
    roots = {prepare_store(source, min_item_interactions=1, cache=cache).root for source in sources}
    assert len(roots) == 2


@settings(max_examples=8)
@given(digits=st.tuples(st.integers(0, 9), st.integers(0, 9)), line=st.sampled_from(["a,x,{}", "a,i{},1", "u{},x,1"]))
def test_a_restored_time_hides_no_change(
    tmp_path_factory: pytest.TempPathFactory, digits: tuple[int, int], line: str
) -> None:
    source = tmp_path_factory.getbasetemp() / "restored/events.csv"
    for digit in digits:
        write(source, line.format(digit) + "\n")
        user, item, time = line.format(digit).split(",")
        assert events(source) == [(user, item, int(time))]


def test_a_change_of_the_titles_is_found(tmp_path: Path) -> None:
    (tmp_path / "ml").mkdir()
    (tmp_path / "ml/ratings.dat").write_text("1::7::5::1\n")
    for title in ("Alien (1979)", "Brazl (1985)"):
        (tmp_path / "ml/movies.dat").write_text(f"7::{title}::Drama\n")
        os.utime(tmp_path / "ml/movies.dat", ns=(TIME, TIME))
        assert prepare_store(tmp_path / "ml", min_item_interactions=1).titles == [title]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("change", ["grows", "is replaced", "vanishes"])
def test_a_file_that_changes_while_it_is_read_gives_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, small: bool
) -> None:
    """The store would be named after the content before the change."""
    monkeypatch.setattr(content_hash, "SMALL", 2**20 if small else 10)
    source, read = write(tmp_path / "events.csv", "a,x,1\n"), prepare.read_interactions

    def change_and_read(layout: Layout) -> Interactions:
        if change == "grows":
            with source.open("a") as file:
                file.write("a,y,2\n")
        elif change == "is replaced":
            os.replace(write(tmp_path / "other", "a,y,1\n"), source)
        rows = read(layout)
        if change == "vanishes":
            source.unlink()
        return rows

    monkeypatch.setattr(prepare, "read_interactions", change_and_read)
    with pytest.raises(SourceChangedError, match=r"events\.csv: was changed while it was read; start again when"):
        events(source)
    assert not list((tmp_path / ".lockstep").glob("interactions-*/meta.json"))
    monkeypatch.undo()
    write(source, "a,x,1\n")
    assert events(source) == [("a", "x", 1)]


def test_a_data_set_that_is_moved_keeps_its_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = prepare_store(write(tmp_path / "here/events.csv", "a,x,1\n"), min_item_interactions=1)
    shutil.move(tmp_path / "here", tmp_path / "there")
    assert is_prepared(tmp_path / "there", min_item_interactions=1)
    assert prepare_store(tmp_path / "there", min_item_interactions=1).root.name == store.root.name


def test_a_large_source_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_hash, "SMALL", 10)
    source = write(tmp_path / "events.csv", "a,x,1\n")
    root = prepare_store(source, min_item_interactions=1).root
    monkeypatch.setattr(content_hash, "hash_file", lambda path: pytest.fail("it is read again"))
    assert prepare_store(source, min_item_interactions=1).root == root
    assert is_prepared(source, min_item_interactions=1)


def test_git_takes_no_store_into_the_repository_of_the_data(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    source = write(tmp_path / "events.csv", "a,x,1\n")
    (tmp_path / ".lockstep").mkdir()  # of a version that wrote no .gitignore
    prepare_store(source, min_item_interactions=1)
    subprocess.run(["git", "-C", str(tmp_path), "add", "-A"], check=True, timeout=60)
    taken = subprocess.run(["git", "-C", str(tmp_path), "ls-files"], capture_output=True, check=True, timeout=60)
    assert taken.stdout.decode().split() == ["events.csv"]


def test_a_store_of_the_previous_version_is_converted_again(tmp_path: Path) -> None:
    source = write(tmp_path / "events.csv", "a,x,1\n")
    store = prepare_store(source, min_item_interactions=1)
    meta = json.loads((store.root / "meta.json").read_text())
    old = store.root.rename(tmp_path / ".lockstep/interactions-0123456789abcdef")
    meta["version"] = 1
    del meta["crc32"]
    (old / "meta.json").write_text(json.dumps(meta))
    assert not is_prepared(source, min_item_interactions=1)
    assert prepare_store(source, min_item_interactions=1).root == store.root


RATED = "user,item,time,rating\n" + "".join(
    f"{user},{item},{time},{rating}\n"
    for time, (user, item, rating) in enumerate(
        [
            *((user, item, 4.5) for user in "ab" for item in "xy"),
            *((user, item, 1) for user, item in ("uc", "ud", "vd", "ve", "we", "wf")),
        ]
    )
)
"""Two users with the same two items, and a chain, which a k-core drops link by link."""


def test_each_filter_has_its_own_store_and_logs_the_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstep")
    source = tmp_path / "rated.csv"
    source.write_text(RATED)
    every: list[Conversion] = [{}, {"k_core": False, "min_rating": None}, {"k_core": True}, {"min_rating": 4}]
    twice: Conversion = {"min_item_interactions": 2, "min_user_interactions": 2}
    stores = [prepare_store(source, **(twice | filters)) for filters in every]
    assert [store.num_interactions for store in stores] == [6, 6, 4, 4]
    assert len({store.root for store in stores}) == 3
    assert stores[0].root == stores[1].root
    assert not {"k_core", "min_rating"} & stores[0].source.keys(), "stores from before these filters are found again"
    reports = [line.partition(": ")[2] for line in caplog.messages if " rows = " in line]
    rare = "2 of items with fewer than 2 rows + 2 of users with fewer than 2 rows"
    assert reports == [
        f"10 rows = 6 kept + {rare}",
        "10 rows = 4 kept + 4 of items with fewer than 2 rows + 2 of users with fewer than 2 rows (3 rounds of the "
        "filters, until nothing changed)",
        f"10 rows = 4 kept + 6 with a rating below 4 + {rare.replace('2 of', '0 of')}",
    ]


def test_ratings_that_nothing_has_or_reads(tmp_path: Path) -> None:
    source = tmp_path / "rated.csv"
    source.write_text(RATED.replace("rating", "note"))
    with pytest.raises(ValueError, match=r"rated.csv: no rating column. Its columns: .*Name it with rating_column"):
        prepare_store(source, min_rating=4)
    with pytest.raises(ValueError, match="data.init_args.rating_column: found 'note', but only .*min_rating reads"):
        InteractionSequences(root=str(source), rating_column="note")
    with pytest.raises(ValueError, match="data.init_args.min_rating: found 4, but `synthetic` has no ratings"):
        InteractionSequences(dataset="synthetic", min_rating=4)
    with pytest.raises(ValueError, match="data.init_args.min_rating must be finite, got nan"):
        InteractionSequences(root=str(source), min_rating=float("nan"))
    data = InteractionSequences(
        root=str(source), rating_column="note", min_rating=4, min_item_interactions=2, max_length=5, batch_size=2
    )
    assert data.events.num_interactions == 4
