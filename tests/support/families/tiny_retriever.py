"""Defines the smallest PageRetriever, on the documents of tiny_documents.py."""

from pathlib import Path
from typing import Any

from tests.support.families.colored_squares import write_run


def write_config(folder: Path, data: dict[str, Any] | None = None, **model: Any) -> list[str]:
    """The options of a run that takes a second."""
    documents = {
        "class_path": "tests.support.families.tiny_documents.TinyDocuments",
        "init_args": {"task": "retrieve", "batch_size": 16, "evaluation_batch_size": 16, **(data or {})},
    }
    return write_run(
        folder / "page_retriever.yaml", "PageRetriever", {"size": 16, **model}, documents, "val/mrr", steps=4
    )
