"""Converts a document to its folder in the cache, in the current process."""

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from datamodules.document_qa.ingestion.document_cache import BROKEN, DocumentCache, SourceRecord
from datamodules.document_qa.ingestion.ingested_document import CHECKSUM, CHUNKS, DOCUMENT
from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import digest, document_kind, file_stamp, not_pages, page_images
from engine.data.errors import UnreadableDocumentError
from engine.io.atomic_file import flush_folder, remove, temp_path
from engine.io.file_hash import crc32_file
from engine.io.json_checksum import with_checksum


class ConversionResult(NamedTuple):
    """Outcome of converting one document: the folder that holds it in the cache, or why it is broken."""

    key: str  # name of its folder; empty if the source files cannot be read
    known: SourceRecord | None  # source files
    broken: str  # error message, or ""
    pages: int = 0  # number of pages that were converted; 0 if the document was in the cache
    notes: tuple[str, ...] = ()  # warnings
    unopened: bool = False  # the source files could not be opened or read, which says nothing about their content


def convert_document(path: Path, cache: DocumentCache) -> ConversionResult:
    """Ingest a document, or record why it is broken, unless the cache has it.

    Raises:
        OSError: the cache cannot be written.
    """
    try:
        files = files_of(path)
        stamps = tuple(map(file_stamp, files))  # before the contents are read, so that later changes are detected
        record = SourceRecord(stamps, digest(files))
    except UnreadableDocumentError as error:
        return ConversionResult("", None, str(error), unopened=isinstance(error.__cause__, OSError))
    key = cache.key(record.content, path)
    with cache.locked(key) as alone:
        done = cache.find_by_key(key, path.name)
        if done is None:
            if alone:
                _remove_unfinished(cache.document_folder(key))
            return _build(path, cache.document_folder(key), cache.settings)._replace(key=key, known=record)
    return ConversionResult(key, record, done if isinstance(done, str) else "")


def _remove_unfinished(folder: Path) -> None:
    """Delete temporary folders of killed processes for a document; requires its lock."""
    for hidden in folder.parent.glob(f".{folder.name}.*"):
        remove(hidden)


def files_of(path: Path) -> list[Path]:
    """Return all source files of a document, its own file first.

    Raises:
        UnreadableDocumentError: the files cannot be determined.
    """
    if document_kind(path) == "markdown":
        from datamodules.document_qa.ingestion.readers.markdown import linked_images

        return [path, *linked_images(path)]
    return page_images(path) if document_kind(path) == "images" else [path]


def _build(path: Path, folder: Path, settings: IngestionSettings) -> ConversionResult:
    """Write a document's folder under a temporary name and rename it."""
    hidden = temp_path(folder)
    remove(hidden)
    hidden.mkdir(parents=True)
    broken = ""
    try:
        with PageWriter(hidden, settings) as writer:
            try:
                _read(path, writer, settings)
                if not writer.pages:
                    raise UnreadableDocumentError("it has no pages")
                writer.note_missing_text()
            except UnreadableDocumentError as error:
                # The entry is also found by a copy of the document that has another name.
                broken = re.sub(rf"^{re.escape(path.name)}(, (?=page )|: )", "", str(error))
        if broken:
            remove(hidden)
            hidden.mkdir()
            _write(hidden / BROKEN, {"reason": broken, **settings.identity})
        else:
            checksum = crc32_file(hidden / CHUNKS)
            description = {"pages": writer.pages, CHECKSUM: checksum, **settings.identity}
            _write(hidden / DOCUMENT, with_checksum(description))
        try:
            os.rename(hidden, folder)
        except OSError:
            if not folder.is_dir():
                raise
            # Without a lock, another process may have been first. It wrote the same content.
        flush_folder(folder.parent)
    finally:
        remove(hidden)
    return ConversionResult(folder.name, None, broken, writer.pages, tuple(writer.notes))


def _read(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    # Imported on demand: a worker that reads PDFs does not need the Markdown reader.
    kind = document_kind(path)
    if kind == "pdf":
        from datamodules.document_qa.ingestion.readers.pdf import read_pdf

        read_pdf(path, writer, settings)
    elif kind == "markdown":
        from datamodules.document_qa.ingestion.readers.markdown import read_markdown

        read_markdown(path, writer, settings)
    else:
        from datamodules.document_qa.ingestion.readers.page_images import read_images

        read_images(page_images(path), writer, settings)
        if path.is_dir():
            for name in not_pages(path):
                writer.note(f"{name!r} is not a page image and is skipped")


def _write(path: Path, content: dict[str, object]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
