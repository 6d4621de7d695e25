"""Runs the benchmark of Parquet files at small sizes and checks its measurements."""

import json

import pytest

from benchmarks.vision_language import parquet
from datamodules.vision_language.files import parquet_rewrite, parquet_row_groups
from datamodules.vision_language.files.lru_cache import SizedLRUCache


@pytest.mark.slow
def test_small_files_are_measured(tmp_path, monkeypatch, capsys):
    def alone(work, *arguments):
        cache = SizedLRUCache(parquet_row_groups.CACHE_BYTES, lambda table: table.nbytes)
        monkeypatch.setattr(parquet_row_groups, "tables", cache)
        return work(*arguments)

    monkeypatch.setattr(parquet, "_alone", alone)
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 2000)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 200_000)
    parquet.main(["--rows", "3000", "--repeats", "1", "--json", str(tmp_path / "out.json")])
    small, again = json.loads((tmp_path / "out.json").read_text())["comparisons"]
    assert small["groups"]["in the file"] == 3
    assert again["groups"]["in the file"] > 10
    for result in (small, again):
        (turn,) = result["blocks"]
        groups = result["groups"]
        assert groups["blocks"]["1"] == [groups["in the file"]]
        # The first group is there since the file was opened.
        assert groups["in the file"] - 1 <= turn["row_groups"] <= groups["in the file"]
        assert turn["samples_per_second"] > 0
    assert "written again: 3,000 rows" in capsys.readouterr().out
