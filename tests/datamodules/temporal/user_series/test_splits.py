"""Tests splits by file, and by a hash of the record."""

import numpy as np
import pytest

from datamodules.temporal.series.series_question import InputSeries, SeriesQuestion
from datamodules.temporal.user_series.splits import split_files, split_of


def question(key="", values=(1.0,), text="?"):
    return SeriesQuestion("a", key, text, (InputSeries("x", "", np.array(values)),), (), "y")


def test_files_are_assigned_to_splits_by_name(tmp_path):
    for name in ("train.jsonl", "val.csv", "readme.md"):
        (tmp_path / name).touch()
    (tmp_path / "test").mkdir()
    (tmp_path / "test/b.parquet").touch()
    found = {split: [file.name for file in files] for split, files in split_files(tmp_path).items()}
    assert found == {"train": ["train.jsonl"], "validation": ["val.csv"], "test": ["b.parquet"]}
    with pytest.raises(ValueError, match="absent: not found"):
        split_files(tmp_path / "absent")


def test_parts_of_the_hub_are_no_mixture_and_other_files_are_logged(tmp_path, caplog):
    for name in (
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "test-00000-of-00001.parquet",
        "x.csv",
    ):
        (tmp_path / name).touch()
    found = split_files(tmp_path)
    assert {split: len(files) for split, files in found.items()} == {"train": 2, "test": 1}
    assert "x.csv is of no split and is not read" in caplog.text


def test_a_hash_split_has_the_configured_shares():
    splits = [split_of(question(str(key))) for key in range(3000)]
    assert 0.78 < splits.count("train") / 3000 < 0.82
    assert 0.08 < splits.count("validation") / 3000 < 0.12
    assert 0.08 < splits.count("test") / 3000 < 0.12


def test_questions_about_a_series_stay_together():
    for number in range(20):
        splits = {split_of(question(values=(number, 2.0), text=text)) for text in ("a", "b", "c")}
        assert len(splits) == 1
