"""Caches ingested documents, and what is known about their source files.

    CACHE/known.json         for each document's path: its files with size and times, and a content digest
    CACHE/documents/KEY/     an ingested document, see ingested_document.py; or `broken.json` with an error message
    CACHE/locks/             locks, so that only one process ingests a document at a time

The key is a hash of file contents and settings, so a document that is only moved is not ingested again.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.ingested_document import DOCUMENT, IngestedDocument
from datamodules.document_qa.ingestion.settings import MARKDOWN_FORMAT, IngestionSettings
from datamodules.document_qa.ingestion.sources import MARKDOWN_SUFFIXES, FileStamp, digest, file_stamp, page_images
from engine.data.errors import UnreadableDocumentError
from engine.io.atomic_file import remove_leftovers, write_atomically
from engine.io.json_checksum import has_wrong_checksum, with_checksum

_KNOWN, _DOCUMENTS, _LOCKS, BROKEN = "known.json", "documents", "locks", "broken.json"
GIVEN_UP, FAILED = "given up ", "failed "
"""Prefixes of a digest of file sizes and times, in place of a digest of the contents.

A document that is given up is tried again by each `prepare`: its worker process died, or its files could not be opened,
which says nothing about its content. A document at which its reader failed is tried again when its files change.
"""

_ESCAPED = "backslashreplace"
"""Handling of bytes in a file name that are not UTF-8: in JSON this is an escape, which is read as the same name."""

log = logging.getLogger("lockstep")


class SourceRecord(NamedTuple):
    """Source files of a document when it was converted; compared with the files to find changed documents."""

    files: tuple[FileStamp, ...]  # all source files, the document's own file first
    content: str  # digest of their contents


class DocumentCache:
    """A folder of ingested documents, which need not exist yet.

    Args:
        folder: the cache folder.
        settings: settings of the ingestion.
    """

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings = folder, settings
        self._known: dict[str, SourceRecord] | None = None
        self._compared: dict[str, SourceRecord] = {}

    def key(self, content: str, path: Path) -> str:
        """Return the key of a document under the current settings, given the digest of its contents and its path."""
        settings = self.settings.identity
        if path.suffix.lower() in MARKDOWN_SUFFIXES:
            settings["format"] = MARKDOWN_FORMAT
        identity = json.dumps({"content": content, **settings}, sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:32]

    def document_folder(self, key: str) -> Path:
        """Return the folder of a document, whether it exists or not."""
        return self.folder / _DOCUMENTS / key

    def find(self, path: Path, again: tuple[str, ...] = ()) -> IngestedDocument | str | None:
        """Look up a document by path, without reading its files. Returns the error message of a broken document.

        Returns None if it has not been ingested with the current settings, or if its files have changed since. If only
        the ctime of a file has moved, its content is compared: a copy with the old time (`cp -p`) is found, and other
        permissions or hard links do not count as a change.

        Args:
            path: path of the document.
            again: prefixes of marks of `mark_unreadable`; None is returned for these documents, to try them again.
        """
        if self._known is None:
            self._known = self._read()
        record = self._known.get(str(path.absolute()))
        if record is None or record.content.startswith(again):
            return None
        current = _find_unchanged(path, record)
        if current is None:
            return None
        if current != record:
            self._compared[str(path.absolute())] = current
        return self.find_by_key(self.key(record.content, path), path.name)

    def find_by_key(self, key: str, name: str) -> IngestedDocument | str | None:
        """Look up a document by key. Returns the error message of a broken document; None if there is no entry."""
        folder = self.document_folder(key)
        if (folder / DOCUMENT).is_file():
            return IngestedDocument(name, folder)
        try:
            return str(json.loads((folder / BROKEN).read_bytes())["reason"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{folder / BROKEN}: is corrupt ({error!r}); delete its folder") from error

    def mark_unreadable(self, files: Sequence[Path], reason: str, mark: str) -> SourceRecord | None:
        """Mark a document as unreadable; the cause may be the machine, not the document.

        The mark is based on file sizes and times, as the contents may be unknown.

        Args:
            files: source files, the document's own file first.
            reason: error message.
            mark: GIVEN_UP or FAILED, which state when the document is tried again.

        Returns:
            The record to save; None if not even sizes and times can be read.
        """
        try:
            stamps = tuple(map(file_stamp, files))
        except OSError:
            return None
        record = SourceRecord(stamps, mark + hashlib.sha256(repr(stamps).encode()).hexdigest())
        text = json.dumps({"reason": reason, **self.settings.identity}, ensure_ascii=False).encode(errors=_ESCAPED)
        marker = self.document_folder(self.key(record.content, files[0])) / BROKEN
        write_atomically(marker, text)
        return record

    def save_records(self, found: dict[str, SourceRecord]) -> None:
        """Save source records, merged with those that other processes have saved."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked(_KNOWN):
            self._known = {**self._read(), **found}
            documents = {
                path: {"files": record.files, "content": record.content} for path, record in sorted(self._known.items())
            }
            content = with_checksum({"documents": documents})
            text = json.dumps(content, ensure_ascii=False, indent=1).encode(errors=_ESCAPED)
            write_atomically(self.folder / _KNOWN, text)

    def save_compared_records(self) -> None:
        """Save the new times of files whose content `find` compared, so that it is not read again."""
        if self._compared:
            self.save_records(self._compared)
            self._compared = {}

    def remove_temporary_files(self) -> None:
        """Delete temporary files of killed processes."""
        remove_leftovers(self.folder / _DOCUMENTS, "")
        remove_leftovers(self.folder, "")

    @contextmanager
    def locked(self, name: str) -> Iterator[bool]:
        """Lock a key, or `known.json`. Yields False if the file system has no locks.

        Processes without a lock do no harm: files appear by a rename, and all processes write the same content.
        """
        from filelock import FileLock

        folder = self.folder / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{name if name == _KNOWN else name[:2]}.lock")  # 256 locks for all documents
        try:
            lock.acquire()
        except (NotImplementedError, PermissionError) as error:
            log.debug("%s cannot be locked (%s)", folder, error)
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _read(self) -> dict[str, SourceRecord]:
        path = self.folder / _KNOWN
        try:
            content = json.loads(path.read_bytes())
            if has_wrong_checksum(content):
                raise ValueError("a value has changed since it was written")
            documents: dict[str, Any] = content["documents"]
            return {
                name: SourceRecord(
                    tuple(FileStamp(str(file), *map(int, state)) for file, *state in record["files"]),
                    str(record["content"]),
                )
                for name, record in documents.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: is corrupt ({error!r}); delete it, and it is created again") from error


def _find_unchanged(path: Path, record: SourceRecord) -> SourceRecord | None:
    """Return the record with the current times; None if a file has changed or cannot be read."""
    try:
        files = [Path(file.path) for file in record.files]
        if path.is_dir() and [image.absolute() for image in page_images(path)] != files:
            return None
        stamps = tuple(map(file_stamp, files))
        # Path, size and mtime. The last field is the ctime, which also moves when permissions or links change.
        if any(now[:3] != before[:3] for now, before in zip(stamps, record.files, strict=True)):
            return None
        # A mark has no digest to compare with.
        if stamps == record.files or record.content.startswith((GIVEN_UP, FAILED)):
            return record
        return SourceRecord(stamps, record.content) if digest(files) == record.content else None
    except (OSError, UnreadableDocumentError):
        return None
