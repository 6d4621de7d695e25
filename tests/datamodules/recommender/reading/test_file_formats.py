"""Tests which format and which columns a file or folder of interactions has."""

from pathlib import Path

import pytest

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


RATINGS_DAT = "1::10::5::978300019\n"
RATINGS_CSV = "userId,movieId,rating,timestamp\n1,10,5.0,978300019\n"
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n1\t10\t3\t978300019\n"


@pytest.mark.parametrize(
    ("files", "kind", "name", "titles"),
    [
        (
            {"ratings.dat": RATINGS_DAT, "movies.dat": "10::T::G\n"},
            "MovieLens ratings.dat",
            "ratings.dat",
            "movies.dat",
        ),
        ({"u.data": "1\t10\t5\t978300019\n", "u.item": "10|T\n"}, "MovieLens u.data", "u.data", "u.item"),
        (
            {"ratings.csv": RATINGS_CSV, "movies.csv": "movieId,title,genres\n"},
            "MovieLens ratings.csv",
            "ratings.csv",
            "movies.csv",
        ),
        ({"a.inter": INTER, "a.item": "item_id:token\n", "a.csv": "x\n"}, "RecBole .inter", "a.inter", "a.item"),
        ({"a.csv": "user,item,time\nu,i,1\n", "README": "x"}, ".csv table", "a.csv", None),
    ],
)
def test_files_and_titles_of_a_folder_are_recognized(
    tmp_path: Path, files: dict[str, str], kind: str, name: str, titles: str | None
) -> None:
    layout = detect_layout(put(tmp_path, files))
    assert (layout.kind, layout.path) == (kind, tmp_path / name)
    assert layout.titles == (tmp_path / titles if titles else None)
    assert detect_layout(tmp_path / name) == layout, "the file itself is recognised the same way"


@pytest.mark.parametrize(
    ("header", "separator", "chosen"),
    [
        ("userId,movieId,rating,timestamp,tag", ",", ("userId", "movieId", "timestamp")),
        ("USER_ID\tITEM_ID\tTIMESTAMP", "\t", ("USER_ID", "ITEM_ID", "TIMESTAMP")),
        ("reviewerID;asin;unixReviewTime;overall", ";", ("reviewerID", "asin", "unixReviewTime")),
        ('"user","item","time"', ",", ("user", "item", "time")),
    ],
)
def test_well_known_columns_are_found(
    tmp_path: Path, header: str, separator: str, chosen: tuple[str, str, str]
) -> None:
    layout = detect_layout(put(tmp_path, {"events.csv": header + "\n"}))
    assert layout.separator == separator
    assert (layout.user, layout.item, layout.time) == chosen


def test_a_stated_column_wins_over_a_recognized_one(tmp_path: Path) -> None:
    put(tmp_path, {"ratings.csv": "userId,movieId,rating,timestamp\n"})
    layout = detect_layout(tmp_path, item_column="rating")
    assert layout.item == "rating"
    assert not layout.integer_ids


def test_recbole_columns_answer_without_their_type(tmp_path: Path) -> None:
    put(tmp_path, {"a.inter": "who:token\tuser_id:token\titem_id:token\ttimestamp:float\n"})
    layout = detect_layout(tmp_path, user_column="who")
    assert (layout.user, layout.item) == ("who:token", "item_id:token")


def test_of_a_recbole_folder_the_whole_file_is_read_and_not_its_split(tmp_path: Path) -> None:
    folder = tmp_path / "beauty"
    folder.mkdir()
    put(folder, {"beauty.inter": INTER, "beauty.train.inter": INTER, "beauty.test.inter": INTER})
    assert detect_layout(folder).path.name == "beauty.inter"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, r"Looked for ratings\.dat, u\.data.*; found nothing"),
        ({"photo.jpg": "x", "README": "x"}, r"found 'README', 'photo\.jpg'"),
        ({"a.csv": "user,item,time\n", "b.csv": "user,item,time\n"}, r"several files .*'a\.csv', 'b\.csv'.*give one"),
        ({"ratings.dat": ""}, r"ratings\.dat: the file is empty"),
        ({"ratings.dat": "1,10,5,9\n"}, r"not a known format.*first line is '1,10,5,9'"),
        ({"a.csv": "user,product,time\n"}, r"no item column. Its columns: 'user', 'product', 'time'.*item_column"),
        ({"a.csv": "usr_id,item,time\n"}, r"no user column.*nearest is 'usr_id'.*user_column"),
        ({"a.csv": "user,item,user\n"}, r"line 1: a column name occurs twice"),
        ({"a.parquet": "PAR1 and nothing else"}, r"a\.parquet: not a whole Parquet file"),
    ],
)
def test_unknown_formats_are_named(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    with pytest.raises(InteractionError, match=expected):
        detect_layout(put(tmp_path, files))


def test_a_missing_column_names_the_nearest(tmp_path: Path) -> None:
    put(tmp_path, {"a.csv": "customer,product,bought_at\n"})
    with pytest.raises(InteractionError, match=r"no column 'produkt' \(item_column\).*did you mean 'product'\?"):
        detect_layout(tmp_path, user_column="customer", item_column="produkt", time_column="bought_at")
    with pytest.raises(InteractionError, match="must be three columns"):
        detect_layout(tmp_path, user_column="customer", item_column="customer", time_column="bought_at")


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file or folder; expected interactions"):
        detect_layout(tmp_path / "nowhere")
