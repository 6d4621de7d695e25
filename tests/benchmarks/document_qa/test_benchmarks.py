"""Runs the benchmarks at small sizes and checks the printed rows."""

import os
from pathlib import Path

import pytest

from benchmarks.document_qa import ingestion, manuals
from benchmarks.document_qa.__main__ import main
from benchmarks.document_qa.memory import PeakMemory
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.benchmarks.conftest import printed
from tests.support.data_files.pdf_files import manual


@pytest.mark.slow
def test_ingestion_reports_pages_rate_and_memory(monkeypatch):
    monkeypatch.setattr(ingestion, "_PAGES", 2)
    measured = ingestion.measure(10, 1)
    assert measured["pages"] == [10]
    assert measured["documents"] == [5]
    assert measured["rate"][0] > 0
    assert all(1e6 < measured[name][0] < 2e9 for name in ("parent", "worker", "parent_of_fewer", "worker_of_fewer"))
    assert measured["again"][0] > 0
    assert "in 5 PDFs" in printed(ingestion.table(measured))
    assert "at most 2" in printed(ingestion.table(measured))


def test_peak_memory_includes_what_is_allocated_meanwhile():
    with PeakMemory(os.getpid()) as memory:
        held = bytearray(os.urandom(1)) * 50_000_000
    assert memory.together >= memory.parent >= len(held)
    assert memory.worker >= 0


def test_generated_manuals_are_read_and_their_pages_retrieved(tmp_path):
    for seed in range(2):
        manual(tmp_path / f"{seed}.pdf", 4, seed)
    (tmp_path / "page.png").write_bytes(b"no PDF, so not asked for")
    measured = manuals.measure(tmp_path, IngestionSettings(dpi=24, workers=1))
    assert (measured["documents"], measured["pages"], measured["table"], measured["queries"]) == (2, 8, 4, 8)
    assert measured["recall@4"] >= measured["recall@1"] > 0.8
    assert "2, 8" in printed(manuals.table(measured))


def test_missing_manuals_are_skipped(capsys, tmp_path):
    main(["--only", "retrieval", "--manuals", str(tmp_path / "none")])
    assert "skipped" in capsys.readouterr().out


def test_fewer_than_100_pages_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--pages", "3"])
    assert "--pages must be at least 100" in capsys.readouterr().err


NUT = Path("/usr/share/doc/nut-doc/pdf")


@pytest.mark.skipif(not NUT.is_dir(), reason="Debian's package nut-doc is not installed")
def test_tables_and_pages_of_real_manuals_are_found():
    """Network UPS Tools: text, pin tables and wiring diagrams. Nothing fails; tables and pages are found."""
    measured = manuals.measure(NUT, IngestionSettings(dpi=48))
    assert measured["documents"] >= 5
    assert measured["pages"] > 200
    assert measured["table"] >= 20
    assert measured["figure"] >= 10
    assert measured["recall@4"] >= measured["recall@1"] >= 0.6
