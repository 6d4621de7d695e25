"""Tests the imports of an ingestion worker, which cost each worker memory and seconds."""

import subprocess
import sys
from pathlib import Path


def test_ingestion_imports_no_torch():
    code = "import sys, datamodules.document_qa.ingestion.ingest; print({'torch', 'lightning'} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"
