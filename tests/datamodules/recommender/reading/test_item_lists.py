"""Tests the lists of items that a recommendation allows or excludes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.item_lists import ItemLists, read_item_list

IDS = [str(number) for number in range(7)]


@given(
    ids=st.lists(st.sampled_from([*IDS, "no", "-1", "a b"]), min_size=1), end=st.sampled_from(["\n", "\r\n", "\n\n"])
)
def test_a_list_has_the_ids_of_its_lines(tmp_path_factory: pytest.TempPathFactory, ids: list[str], end: str) -> None:
    path = tmp_path_factory.getbasetemp() / "list.txt"
    path.write_bytes(("\ufeff" + end.join(ids)).encode())
    items_read = read_item_list(path, {item: number for number, item in enumerate(IDS, 1)})
    assert set(items_read.items.tolist()) == {IDS.index(item) + 1 for item in ids if item in IDS}
    assert items_read.unknown == [item for item in dict.fromkeys(ids) if item not in IDS]


def excluded(folder: Path, allow: str | None, deny: str | None) -> tuple[list[str], list[str]]:
    """The items that may be recommended, and the reports."""
    paths = {}
    for name, text in (("allow", allow), ("deny", deny)):
        if text is not None:
            (folder / f"{name}.txt").write_text(text)
            paths[name] = str(folder / f"{name}.txt")
    mask, reports = ItemLists(**paths).read_excluded(IDS)
    assert mask is not None
    assert len(mask) == len(IDS) + 1
    assert mask[0]
    return [item for number, item in enumerate(IDS, 1) if not mask[number]], reports


def test_denied_items_are_taken_from_the_allowed_ones(tmp_path: Path) -> None:
    assert ItemLists().read_excluded(IDS) == (None, [])
    assert excluded(tmp_path, "3\n1\n5", None) == (["1", "3", "5"], [])
    assert excluded(tmp_path, None, "3\n1\n") == (["0", "2", "4", "5", "6"], [])
    assert excluded(tmp_path, "3\n1\n5\n", "5\n6\n") == (["1", "3"], [])


def test_unknown_ids_are_named_with_their_count(tmp_path: Path) -> None:
    items, (report,) = excluded(tmp_path, "3\nx\n03\nx\n", "1\n")
    assert items == ["3"]
    assert report == f"{tmp_path}/allow.txt: 2 of 3 ids are not items of the model and are ignored: 'x', '03'"
    _, (report,) = excluded(tmp_path, None, "".join(f"new-{number}\n" for number in range(30)))
    assert "30 of 30 ids" in report
    assert report.endswith("'new-9', ...")


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        (
            "x\ny\n",
            None,
            r"data.init_args.allow_items: .*allow.txt: 2 of 2 ids are not .*None is left to recommend",
        ),
        ("1\n2\n", "2\n1\n", r"data.init_args.deny_items: no item is left to recommend \(.*allow.txt without those of"),
        (None, "".join(f"{item}\n" for item in IDS), r"no item is left to recommend \(all but those of .*deny.txt"),
        ("\n \n", None, r"allow.txt: found no id, expected an item id on each line"),
        (None, "", r"deny.txt: found no id"),
    ],
)
def test_lists_that_leave_no_item_are_refused(tmp_path: Path, allow: str, deny: str, expected: str) -> None:
    with pytest.raises(InteractionError, match=expected):
        excluded(tmp_path, allow, deny)


def test_files_that_are_no_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="data.init_args.allow_items: absent.txt does not exist"):
        ItemLists(allow="absent.txt").read_excluded(IDS)
    (tmp_path / "a").write_bytes(b"1\n\xe9\n")
    with pytest.raises(InteractionError, match="a: line 2: the text is not UTF-8"):
        ItemLists(allow=str(tmp_path / "a")).read_excluded(IDS)
    (tmp_path / "a").write_bytes("1\n".encode("utf-16"))
    with pytest.raises(InteractionError, match="a: the file is text in UTF-16"):
        ItemLists(deny=str(tmp_path / "a")).read_excluded(IDS)
