"""From the files of a document to its folder in the cache, in the process that is asked to."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.cache import BROKEN, Cache, Known
from datamodules.document_qa.ingestion.ingested_document import DOCUMENT
from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import digest, kind_of, page_images, stamp
from engine.durable_file import beside, flush_folder, remove


class Converted(NamedTuple):
    """What became of a document."""

    key: str  # its folder's name; empty where the files could not even be read
    known: Known | None  # what it was made from
    broken: str  # the reason, or nothing
    pages: int = 0  # that were made now; none where it was there already
    notes: tuple[str, ...] = ()  # what the user should hear of, but breaks nothing


def convert(path: Path, cache: Cache) -> Converted:
    """Ingests a document, unless that has been done; what is wrong with it is kept, too.

    Raises:
        OSError: the cache cannot be written.
    """
    try:
        files = files_of(path)
        stamps = tuple(map(stamp, files))  # before they are read: what is written meanwhile is noticed the next time
        known = Known(stamps, digest(files))
    except BrokenDocument as error:
        return Converted("", None, str(error))
    key = cache.key(known.content)
    with cache.locked(key) as alone:
        done = cache.at(key, path.name)
        if done is None:
            if alone:
                _remove_unfinished(cache.place(key))
            return _build(path, cache.place(key), cache.settings)._replace(key=key, known=known)
    return Converted(key, known, done if isinstance(done, str) else "")


def _remove_unfinished(place: Path) -> None:
    """What processes that were killed have left of a document; to be called by whoever is alone with it."""
    for hidden in place.parent.glob(f".{place.name}.*"):
        remove(hidden)


def files_of(path: Path) -> list[Path]:
    """All that a document is made from, its own file first.

    Raises:
        BrokenDocument: it cannot be told.
    """
    if kind_of(path) == "markdown":
        from datamodules.document_qa.ingestion.markdown import linked_images

        return [path, *linked_images(path)]
    return page_images(path) if kind_of(path) == "images" else [path]


def _build(path: Path, place: Path, settings: IngestionSettings) -> Converted:
    """The folder appears whole, by a rename."""
    hidden = beside(place)
    remove(hidden)
    hidden.mkdir(parents=True)
    broken = ""
    try:
        with PageWriter(hidden, settings) as writer:
            try:
                _read(path, writer, settings)
                if not writer.pages:
                    raise BrokenDocument("it has no pages")
            except BrokenDocument as error:
                broken = str(error)
        if broken:
            remove(hidden)
            hidden.mkdir()
            _write(hidden / BROKEN, {"reason": broken, **settings.identity})
        else:
            _write(hidden / DOCUMENT, {"pages": writer.pages, **settings.identity})
        try:
            os.rename(hidden, place)
        except OSError:
            if not place.is_dir():
                raise
            # Another process, without a lock, was first. It wrote the same.
        flush_folder(place.parent)
    finally:
        remove(hidden)
    return Converted(place.name, None, broken, writer.pages, tuple(writer.notes))


def _read(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    # Imported only where they are needed: a worker that reads PDFs needs no Markdown.
    kind = kind_of(path)
    if kind == "pdf":
        from datamodules.document_qa.ingestion.pdf import read_pdf

        read_pdf(path, writer, settings)
    elif kind == "markdown":
        from datamodules.document_qa.ingestion.markdown import read_markdown

        read_markdown(path, writer, settings)
    else:
        from datamodules.document_qa.ingestion.scans import read_images

        read_images(page_images(path), writer, settings)


def _write(path: Path, content: dict[str, object]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
