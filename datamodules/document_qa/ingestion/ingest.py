"""Ingests documents in worker processes, and gives access to ingested documents."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from datamodules.document_qa.ingestion.convert import ConversionResult, files_of
from datamodules.document_qa.ingestion.document_cache import FAILED, GIVEN_UP, DocumentCache, SourceRecord
from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.ingestion.ocr.recognizer_choice import require_recognizer
from datamodules.document_qa.ingestion.ray_tasks import convert_with_ray, require_ray
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import document_kind
from datamodules.document_qa.ingestion.worker_pool import WorkerFailure, convert_documents
from engine.data.errors import UnreadableDocumentError
from engine.io.gitignored_folder import make_gitignored_folder
from engine.system.installation import PROGRAM

_KEPT = 10.0  # seconds between saves of source records and between progress messages
_NOTES = 3  # number of warnings per document that are logged individually

log = logging.getLogger("lockstep")


class IngestedDocuments(NamedTuple):
    """Documents, by their names as `document_names` returns them."""

    documents: dict[str, IngestedDocument]
    broken: dict[str, str]  # error messages of skipped documents


def document_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each path: that of its file or folder, such as `manual.pdf`, or the path if several have it."""
    times = Counter(path.name for path in set(paths))
    return {path: path.name if times[path.name] == 1 else str(path) for path in paths}


def ingest(paths: Sequence[Path], cache: Path, settings: IngestionSettings) -> IngestedDocuments:
    """Ingest documents that are new or have changed.

    Calls may be interrupted, repeated and concurrent; finished documents are kept.

    Args:
        paths: PDFs, Markdown files, images, folders of page images; see sources.find_documents.
        cache: cache folder.
        settings: settings of the ingestion. With `on_broken: skip`, every call reports the broken documents. Documents
            at which a worker process died, or whose files could not be opened, are retried by every call; documents at
            which a reader failed when their files change, and with `stop` by every call.

    Raises:
        ValueError: a path is not a document, (with `on_broken: stop`) a document is broken, or a package is missing.
        OSError: the cache cannot be written.
    """
    settings.check()
    _check_kinds(paths)
    store, started = DocumentCache(cache, settings), time.monotonic()
    again = (GIVEN_UP, FAILED) if settings.on_broken == "stop" else (GIVEN_UP,)
    outcomes = {path: store.find(path, again) for path in paths}
    store.save_compared_records()
    new = [path for path, result in outcomes.items() if result is None]
    for path, result in outcomes.items():
        if isinstance(result, str):
            _report_broken(path, result, settings)
    if new:
        require_recognizer(settings.ocr)
        if settings.engine == "ray":
            require_ray()
        make_gitignored_folder(cache)
        store.remove_temporary_files()
        page_count = _convert(new, store, outcomes)
        done = sum(isinstance(outcomes[path], IngestedDocument) for path in new)
        log.info(
            "%s ingested into %s: %s in %.0f s", _in_words(done, "document"), cache, _in_words(page_count, "page"),
            time.monotonic() - started,
        )  # fmt: skip
    else:
        cached = sum(isinstance(result, IngestedDocument) for result in outcomes.values())
        log.info("%s already ingested into %s: nothing to do", _in_words(cached, "document"), cache)
    return _sort_outcomes(outcomes)


def open_ingested(paths: Sequence[Path], cache: Path, settings: IngestionSettings) -> IngestedDocuments:
    """Return documents that have been ingested, without reading their source files.

    Raises:
        ValueError: a path is not a document, or a document has not been ingested since it changed.
    """
    settings.check()
    _check_kinds(paths)
    store = DocumentCache(cache, settings)
    outcomes = {path: store.find(path) for path in paths}
    missing = [path for path, result in outcomes.items() if result is None]
    if missing:
        raise ValueError(
            f"{missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''}: not ingested into {cache} with "
            f"these settings, or changed since; run `{PROGRAM} prepare` with the same config"
        )
    return _sort_outcomes(outcomes)


def _convert(new: Sequence[Path], store: DocumentCache, outcomes: dict[Path, IngestedDocument | str | None]) -> int:
    """Convert new documents, add them to `found` and return the number of converted pages."""
    remembered: dict[str, SourceRecord] = {}
    engine = convert_with_ray if store.settings.engine == "ray" else convert_documents
    pages, saved_at = 0, time.monotonic()
    try:
        # `closing` ends the workers at once when a broken document raises.
        with (
            _progress(len(new)) as progress,
            closing(engine(new, store.folder, store.settings)) as results,
        ):
            for number, (path, result) in enumerate(results, 1):
                if isinstance(result, ConversionResult):
                    pages += result.pages
                    _log_notes(path, result.notes)
                outcomes[path] = _outcome(path, result, store)
                record = result.known if isinstance(result, ConversionResult) else None
                if record is None:
                    record = store.mark_unreadable(_files(path), str(outcomes[path]), _mark(result))
                if record is not None:
                    remembered[str(path.absolute())] = record
                if isinstance(outcomes[path], str):
                    _report_broken(path, str(outcomes[path]), store.settings)
                progress(number, pages)
                if time.monotonic() - saved_at > _KEPT:
                    store.save_records(remembered)
                    remembered, saved_at = {}, time.monotonic()
    finally:
        # Remembered also after an error or Ctrl-C, so that finished documents are not ingested again.
        if remembered:
            store.save_records(remembered)
    return pages


def _outcome(path: Path, result: ConversionResult | WorkerFailure, store: DocumentCache) -> IngestedDocument | str:
    if isinstance(result, ConversionResult):
        return result.broken or IngestedDocument(path.name, store.document_folder(result.key))
    return result.reason


def _mark(result: ConversionResult | WorkerFailure) -> str:
    transient = result.unopened if isinstance(result, ConversionResult) else result.died
    return GIVEN_UP if transient else FAILED


def _files(path: Path) -> list[Path]:
    """Return the source files of an unreadable document, as far as they can be determined."""
    try:
        return files_of(path)
    except (UnreadableDocumentError, OSError):
        return [path]


def _report_broken(path: Path, reason: str, settings: IngestionSettings) -> None:
    """Log that a document is skipped.

    Raises:
        ValueError: `on_broken` is `stop`.
    """
    if settings.on_broken == "stop":
        raise ValueError(f"{path}: {reason}. Remove it, or set data.init_args.ingestion.on_broken to skip")
    log.warning("%s is skipped: %s", path, reason)


def _log_notes(path: Path, notes: Sequence[str]) -> None:
    for note in notes[:_NOTES]:
        log.warning("%s, %s", path, note)
    if notes[_NOTES:]:
        log.warning("%s: %d more warnings of this kind", path, len(notes) - _NOTES)


def _check_kinds(paths: Sequence[Path]) -> None:
    for path in paths:
        if document_kind(path) is None:
            raise ValueError(f"{path}: not a document; expected a PDF, a Markdown file, an image or a folder of them")


def _sort_outcomes(outcomes: dict[Path, IngestedDocument | str | None]) -> IngestedDocuments:
    names = document_names(list(outcomes))
    return IngestedDocuments(
        {names[path]: result for path, result in outcomes.items() if isinstance(result, IngestedDocument)},
        {names[path]: result for path, result in outcomes.items() if isinstance(result, str)},
    )


def _in_words(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@contextmanager
def _progress(documents: int) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar in a terminal, otherwise log a message now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    logged_at = time.monotonic()

    def log_progress(done: int, pages: int) -> None:
        nonlocal logged_at
        if time.monotonic() - logged_at > _KEPT:
            logged_at = time.monotonic()
            log.info("%d of %s ingested, %s", done, _in_words(documents, "document"), _in_words(pages, "page"))

    if not sys.stderr.isatty():
        yield log_progress
        return
    columns = (
        TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pages]:,} pages"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=documents, pages=0)
        yield lambda documents, pages: bar.update(task, completed=documents, pages=pages)
