"""Tests names of shards: single, by a range, a choice or a pattern; missing shards are reported."""

import pytest

from datamodules.vision_language.shards.url_expansion import shard_names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b-009.tar", "b-010.tar", "b-011.tar", "a.tar", "[x].tar", "notes.txt"):
        (tmp_path / name).touch()


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("b-{009..011}.tar", ["b-009.tar", "b-010.tar", "b-011.tar"]),
        ("b-01{0..1}.tar", ["b-010.tar", "b-011.tar"]),
        ("{a,b-010}.tar", ["a.tar", "b-010.tar"]),
        ("b-*.tar", ["b-009.tar", "b-010.tar", "b-011.tar"]),
        ("[x].tar", ["[x].tar"]),
        ("s3://bucket/{00..02}.tar", ["s3://bucket/00.tar", "s3://bucket/01.tar", "s3://bucket/02.tar"]),
        ("http://host/{a,b}/{8..10}.tar", [f"http://host/{side}/{n}.tar" for side in "ab" for n in (8, 9, 10)]),
    ],
)
def test_patterns_expand_to_names_of_shards(folder, pattern, names):
    assert shard_names(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        ("b-{009..013}.tar", FileNotFoundError, "of 5 shards these are missing: b-012.tar, b-013.tar"),
        ("b-{009..019}.tar", FileNotFoundError, "b-014.tar and 5 more"),
        ("c-*.tar", FileNotFoundError, "c-.*.tar matches no file"),
        ("{a,b-010,a}.tar", ValueError, "a.tar is named twice"),
        ("{a,b-{0..1}}.tar", FileNotFoundError, "missing: {a,b-0}.tar"),
        ("b-{5..2}.tar", ValueError, "neither a range"),
        ("b-{0..99999999}.tar", ValueError, "names 100,000,000 shards, expected at most 1,000,000"),
        ("{0..999999}" * 1000, ValueError, "shards, expected at most 1,000,000"),
        ("{0..9999999999999999999}.tar", ValueError, "neither a range"),
        ("{0..99999}{0..99999}.tar", ValueError, "names 10,000,000,000 shards, expected at most 1,000,000"),
        ("s3://bucket/*.tar", ValueError, "must be named, for example by a range"),
    ],
)
def test_wrong_patterns_of_shards_are_refused(folder, pattern, error, message):
    with pytest.raises(error, match=message):
        shard_names(pattern)
