"""The folder of a document that is being written is not removed."""

import os

from PIL import Image

from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.settings import IngestionSettings
from engine.io.atomic_file import remove_leftovers


def test_a_document_that_is_being_written_does_not_look_forgotten(tmp_path):
    """Another machine can judge a folder only by the time of its last write."""
    folder = tmp_path / f".0123.elsewhere.{os.getpid()}.new"
    folder.mkdir()
    with PageWriter(folder, IngestionSettings()) as writer:
        os.utime(folder, (1, 1))
        writer.add(Image.new("RGB", (9, 9)), [])
        assert remove_leftovers(tmp_path, "") == []
        assert (folder / "pages/001.png").is_file()
        os.utime(folder, (1, 1))
        assert remove_leftovers(tmp_path, "") == [folder.name]
