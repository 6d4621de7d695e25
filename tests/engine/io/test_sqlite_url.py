"""Tests that a SQLite file is opened at its path, whatever characters the path has."""

import pytest

from engine.io.sqlite_url import sqlite_file, sqlite_url

sqlalchemy = pytest.importorskip("sqlalchemy")


@pytest.mark.parametrize("name", ["plain", "a b", "a?b", "{a}", "100%", "a#b", "ü", "a%3Fb"])
def test_the_file_of_an_address_is_that_which_sqlalchemy_opens(tmp_path, name):
    file = tmp_path / name / "study.db"
    file.parent.mkdir()
    address = sqlite_url(file)
    assert "{" not in address
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table found (x integer)"))
    engine.dispose()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert file.read_bytes().startswith(b"SQLite format 3")
    assert sqlite_file(address) == str(file)


def test_a_plain_path_stays_legible(tmp_path):
    assert sqlite_url(tmp_path / "mlflow.db") == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize("address", ["postgresql://host/runs", "https://host", "sqlite:///:memory:", "sqlite://"])
def test_other_databases_have_no_file(address):
    assert sqlite_file(address) is None
