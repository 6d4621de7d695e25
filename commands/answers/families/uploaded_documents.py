"""Ingests the documents of visitors with the family's own reader, in a process with a time limit."""

import hashlib
import logging
import shutil
import time
import weakref
from collections import OrderedDict
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from commands.answers.answer_blocks import Note
from commands.answers.answer_service import UploadedFile, UserInputError
from datamodules.document_qa.ingestion.convert import ConversionResult
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.ingested_document import PAGES, IngestedDocument
from datamodules.document_qa.ingestion.ocr.recognizer_choice import require_recognizer
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import IMAGE_SUFFIXES, PDF_SUFFIXES
from datamodules.document_qa.ingestion.worker_pool import WorkerFailure, convert_with_timeout
from engine.io.atomic_file import remove

log = logging.getLogger("lockstep")

SUFFIXES = (*PDF_SUFFIXES, *IMAGE_SUFFIXES)
"""Endings of accepted files. Markdown is not among them: it may name any image of this machine."""

MAX_PAGES = 200
"""Largest number of pages of a document, of which the run's setting may allow fewer."""

_MAX_DOCUMENTS = 32
_MAX_SECONDS = 180.0
_MAX_MEMORY = 2 << 30
"""Bytes that the reading of a document may allocate. A scan of 4 million pixels needs less than 256 MiB, also with
recognized text; the compressed content of a PDF of 1.5 MB can have 1.5 GB."""

_PROGRESS = 0.3  # seconds between notes of progress


class UploadedDocuments:
    """Ingested documents of visitors, in a temporary folder; the least recently used are forgotten first.

    Args:
        settings: the run's settings of the ingestion.
        seconds: time after which an ingestion is refused.
        memory: bytes above which an ingestion is refused, on Linux.

    Raises:
        ValueError: the package of the optical character recognition is missing.
    """

    def __init__(self, settings: IngestionSettings, seconds: float = _MAX_SECONDS, memory: int = _MAX_MEMORY) -> None:
        require_recognizer(settings.ocr)
        self._folder = Path(mkdtemp(prefix="lockstep-documents-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)  # also at the end of the program
        max_pages = min(settings.max_pages, MAX_PAGES)
        self._settings = replace(settings, max_pages=max_pages, workers=1, on_broken="skip")
        self._cache = DocumentCache(self._folder, self._settings)
        self._seconds, self._memory = seconds, memory
        self._known: OrderedDict[str, IngestedDocument] = OrderedDict()

    def read(self, file: UploadedFile, key: str) -> Generator[Note, None, IngestedDocument]:
        """Yield the progress of an ingestion; return the document, also if it has been ingested before.

        Args:
            file: the document.
            key: key of the notes of progress.

        Raises:
            UserInputError: the document cannot be read, has too many pages, or takes too long.
        """
        digest = hashlib.sha256(file.content).hexdigest()
        if digest not in self._known:
            self._known[digest] = yield from self._ingest(file, digest, key)
            if len(self._known) > _MAX_DOCUMENTS:
                _, forgotten = self._known.popitem(last=False)
                remove(forgotten.folder)
        self._known.move_to_end(digest)
        return IngestedDocument(file.name, self._known[digest].folder)

    def _ingest(self, file: UploadedFile, digest: str, key: str) -> Generator[Note, None, IngestedDocument]:
        # The name is matched, because Path(".pdf").suffix is empty, and the file would be read as another kind.
        suffix = next((suffix for suffix in SUFFIXES if file.name.lower().endswith(suffix)), None)
        if suffix is None:
            raise UserInputError(f"{file.name}: expected a file that ends in {', '.join(SUFFIXES)}")
        path = self._folder / f"{digest}{suffix}"
        path.write_bytes(file.content)
        end = time.monotonic() + self._seconds
        try:
            steps = convert_with_timeout([path], self._cache.folder, self._settings, _PROGRESS, memory=self._memory)
            with closing(steps):
                for step in steps:
                    if time.monotonic() > end:
                        raise UserInputError(f"{file.name}: reading it takes longer than {self._seconds:.0f} s")
                    if step is not None:
                        return self._outcome(step[1], file, path)
                    yield Note(key, f"reading {file.name}: {self._pages_read()} pages")
        finally:
            path.unlink(missing_ok=True)
            for unfinished in self._unfinished_folders():  # of a process that was ended
                remove(unfinished)
        raise AssertionError("a document has one result")

    def _outcome(self, result: ConversionResult | WorkerFailure, file: UploadedFile, path: Path) -> IngestedDocument:
        if isinstance(result, WorkerFailure):  # its reason may name files of this machine
            log.warning("%s could not be read: %s", file.name, result.reason)
            memory_need = f"needs more than {self._memory / 2**30:.3g} GiB of memory"
            raise UserInputError(f"{file.name}: it is corrupt, or reading it {memory_need}")
        if result.broken:
            reason = result.broken.replace(str(path), file.name).replace(path.name, file.name)
            raise UserInputError(f"{file.name}: {reason}")
        return IngestedDocument(file.name, self._cache.document_folder(result.key))

    def _pages_read(self) -> int:
        return sum(1 for folder in self._unfinished_folders() for _ in (folder / PAGES).glob("*.png"))

    def _unfinished_folders(self) -> list[Path]:
        """Return the folders of documents that are being written, under their temporary names."""
        return list(self._cache.document_folder("any").parent.glob(".*"))
