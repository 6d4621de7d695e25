"""Where ingested documents are kept, and what is known of the files that they were made from.

    CACHE/known.json         of each document's path: its files with their sizes and times, and its key
    CACHE/documents/KEY/     an ingested document, see ingested_document.py; or `broken.json`, which says why it is none
    CACHE/locks/             so that of several processes one ingests a document, the others wait

A key is a hash of the files' contents and the settings. So a document that was only moved is not ingested again.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from datamodules.document_qa.ingestion.ingested_document import DOCUMENT, IngestedDocument
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import Stamp, page_images, stamp
from engine.durable_file import flush_folder, remove_leftovers, write_beside

_KNOWN, _DOCUMENTS, _LOCKS, BROKEN = "known.json", "documents", "locks", "broken.json"
_GIVEN_UP = "given up "
"""In place of a digest, before what is known of the files."""

log = logging.getLogger("lockstep")


class Known(NamedTuple):
    """A document that has been looked at."""

    files: tuple[Stamp, ...]  # all that it was made from, its own file first
    content: str  # digest of their contents


class Cache:
    """A folder of ingested documents. It need not be there yet.

    Args:
        folder: the cache.
        settings: how documents are ingested.
    """

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings = folder, settings
        self._known: dict[str, Known] | None = None

    def key(self, content: str) -> str:
        """Of a document under these settings, from the digest of its contents."""
        identity = json.dumps({"content": content, **self.settings.identity}, sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:32]

    def place(self, key: str) -> Path:
        """The folder of a document, whether it is there or not."""
        return self.folder / _DOCUMENTS / key

    def find(self, path: Path, again: bool = False) -> IngestedDocument | str | None:
        """A document by the path of what it was made from, without reading that; of a broken one, the reason.

        None: it has not been ingested under these settings, or its files were written to since.

        Args:
            again: take what `give_up` was told of for what has not been ingested.
        """
        if self._known is None:
            self._known = self._read()
        known = self._known.get(str(path.absolute()))
        if known is None or not _unchanged(path, known):
            return None
        if again and known.content.startswith(_GIVEN_UP):
            return None
        return self.at(self.key(known.content), path.name)

    def at(self, key: str, name: str) -> IngestedDocument | str | None:
        """What is known of a document by its key: itself, or the reason why it is broken."""
        place = self.place(key)
        if (place / DOCUMENT).is_file():
            return IngestedDocument(name, place)
        try:
            return str(json.loads((place / BROKEN).read_bytes())["reason"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{place / BROKEN}: cannot be read ({error!r}); delete the folder") from error

    def give_up(self, files: Sequence[Path], reason: str) -> Known | None:
        """Keeps that a document could not be read for a reason that may lie in the machine, until it is written to.

        It goes by the files' sizes and times, as whoever failed at them has not told their contents.

        Args:
            files: that it is made of, its own first.

        Returns:
            What to remember of it; None: its files cannot even be looked at.
        """
        try:
            stamps = tuple(map(stamp, files))
        except OSError:
            return None
        known = Known(stamps, _GIVEN_UP + hashlib.sha256(repr(stamps).encode()).hexdigest())
        text = json.dumps({"reason": reason, **self.settings.identity}, ensure_ascii=False).encode()
        marker = self.place(self.key(known.content)) / BROKEN

        def write(file: IO[bytes]) -> None:
            file.write(text)

        os.replace(write_beside(marker, write, lambda hidden: None), marker)
        return known

    def remember(self, found: dict[str, Known]) -> None:
        """Keeps what was found out, beside what other processes have kept."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.locked(_KNOWN):
            self._known = {**self._read(), **found}
            documents = {
                path: {"files": known.files, "content": known.content} for path, known in sorted(self._known.items())
            }
            text = json.dumps({"documents": documents}, ensure_ascii=False, indent=1).encode()
            path = self.folder / _KNOWN

            def write(file: IO[bytes]) -> None:
                file.write(text)

            os.replace(write_beside(path, write, lambda hidden: None), path)
            flush_folder(self.folder)

    def tidy(self) -> None:
        """Deletes what killed processes left half done."""
        remove_leftovers(self.folder / _DOCUMENTS, "")
        remove_leftovers(self.folder, "")

    @contextmanager
    def locked(self, what: str) -> Iterator[bool]:
        """Alone with a key, or with `known.json`; False where the file system has no locks, so perhaps not alone.

        That does no harm: whatever is written appears whole, and is the same whoever wrote it.
        """
        from filelock import FileLock

        folder = self.folder / _LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{what if what == _KNOWN else what[:2]}.lock")  # 256 of them for all documents
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

    def _read(self) -> dict[str, Known]:
        path = self.folder / _KNOWN
        try:
            documents: dict[str, Any] = json.loads(path.read_bytes())["documents"]
            return {
                name: Known(
                    tuple(Stamp(str(file), int(size), int(modified)) for file, size, modified in one["files"]),
                    str(one["content"]),
                )
                for name, one in documents.items()
            }
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: cannot be read ({error!r}); delete it, and it is made again") from error


def _unchanged(path: Path, known: Known) -> bool:
    try:
        if path.is_dir() and [str(one.absolute()) for one in page_images(path)] != [one.path for one in known.files]:
            return False
        return all(stamp(Path(one.path)) == one for one in known.files)
    except OSError:
        return False
