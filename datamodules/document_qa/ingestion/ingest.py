"""Documents from files, once: what `prepare` does; and what was ingested, for everybody else."""

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.cache import Cache, Known
from datamodules.document_qa.ingestion.conversion import Converted, files_of
from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import kind_of
from datamodules.document_qa.ingestion.workers import Died, converted

_KEPT = 10.0  # seconds after which it is written down again what is known of the files, and said how far it is
_NOTES = 3  # of a document that are told one by one

log = logging.getLogger("lockstep")


class Ingested(NamedTuple):
    """Documents, by the name of their file or folder: `manual.pdf`."""

    documents: dict[str, IngestedDocument]
    broken: dict[str, str]  # of those left out: why


def ingest(paths: Sequence[Path], cache: Path, settings: IngestionSettings) -> Ingested:
    """Ingests documents that are new or were written to since; says what it does.

    It may be repeated and interrupted, and several processes may do it at once: whatever is done stays.

    Args:
        paths: PDFs, Markdown files, images, folders of page images; see sources.find_documents.
        cache: folder to keep them in.
        settings: how. With `on_broken: skip` broken documents are named, and again by every later call. Those at which
            a process failed or died are then tried again when they are written to; with `stop` every time.

    Raises:
        ValueError: a path is no document, two have one name, (with `on_broken: stop`) one is broken, or a package is
            missing.
        OSError: the cache cannot be written.
    """
    settings.check()
    _check_names(paths)
    kept, begun = Cache(cache, settings), time.monotonic()
    found = {path: kept.find(path, again=settings.on_broken == "stop") for path in paths}
    new = [path for path, one in found.items() if one is None]
    for path, one in found.items():
        if isinstance(one, str):
            _tell(path, one, settings)
    if new:
        _check_packages()
        kept.tidy()
        made = _convert(new, kept, found)
        done = sum(isinstance(found[path], IngestedDocument) for path in new)
        log.info(
            "%s ingested into %s: %s in %.0f s", _counted(done, "document"), cache, _counted(made, "page"),
            time.monotonic() - begun,
        )  # fmt: skip
    else:
        there = sum(isinstance(one, IngestedDocument) for one in found.values())
        log.info("%s ingested already in %s: nothing to do", _counted(there, "document"), cache)
    return _sorted(found)


def ingested(paths: Sequence[Path], cache: Path, settings: IngestionSettings) -> Ingested:
    """The same documents, once they have been ingested. Opens none of their files.

    Raises:
        ValueError: a path is no document, two have one name, or one has not been ingested as it is now.
    """
    settings.check()
    _check_names(paths)
    kept = Cache(cache, settings)
    found = {path: kept.find(path) for path in paths}
    missing = [path for path, one in found.items() if one is None]
    if missing:
        raise ValueError(
            f"{missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}: not ingested into {cache} with "
            "these settings, or written to since; run `train.py prepare` with the same config"
        )
    return _sorted(found)


def _convert(new: Sequence[Path], kept: Cache, found: dict[Path, IngestedDocument | str | None]) -> int:
    """Fills in what is new; returns the number of pages made."""
    remembered: dict[str, Known] = {}
    pages, said = 0, time.monotonic()
    try:
        # Closed at once when a broken document stops it: its processes are not to work on.
        with _progress(len(new)) as progress, closing(converted(new, kept.folder, kept.settings)) as results:
            for number, (path, result) in enumerate(results, 1):
                if isinstance(result, Converted):
                    pages += result.pages
                    _tell_notes(path, result.notes)
                found[path] = _outcome(path, result, kept)
                known = result.known if isinstance(result, Converted) else None
                if known is None:
                    known = kept.give_up(_files(path), str(found[path]))
                if known is not None:
                    remembered[str(path.absolute())] = known
                if isinstance(found[path], str):
                    _tell(path, str(found[path]), kept.settings)
                progress(number, pages)
                if time.monotonic() - said > _KEPT:
                    kept.remember(remembered)
                    remembered, said = {}, time.monotonic()
    finally:
        if remembered:
            kept.remember(remembered)
    return pages


def _outcome(path: Path, result: Converted | Died, kept: Cache) -> IngestedDocument | str:
    if isinstance(result, Converted):
        return result.broken or IngestedDocument(path.name, kept.place(result.key))
    return result.reason


def _files(path: Path) -> list[Path]:
    """Of a document that could not be read: as many as can be told."""
    try:
        return files_of(path)
    except (BrokenDocument, OSError):
        return [path]


def _tell(path: Path, reason: str, settings: IngestionSettings) -> None:
    """
    Raises:
        ValueError: broken documents are to stop it.
    """
    if settings.on_broken == "stop":
        raise ValueError(f"{path}: {reason}. Remove it, or leave such documents out with ingestion.on_broken: skip")
    log.warning("%s is left out: %s", path, reason)


def _tell_notes(path: Path, notes: Sequence[str]) -> None:
    for note in notes[:_NOTES]:
        log.warning("%s, %s", path, note)
    if notes[_NOTES:]:
        log.warning("%s: and %d pages more", path, len(notes) - _NOTES)


def _check_packages() -> None:
    missing = [name for name in ("PIL", "pypdfium2", "pdfplumber") if find_spec(name) is None]
    if missing:
        raise ValueError(f"ingestion needs {missing[0]}, which is not installed: pip install -e '.[documents]'")


def _check_names(paths: Sequence[Path]) -> None:
    for path in paths:
        if kind_of(path) is None:
            raise ValueError(f"{path}: no document; expected a PDF, a Markdown file, an image, or a folder of them")
    name, times = Counter(path.name for path in paths).most_common(1)[0] if paths else ("", 1)
    if times > 1:
        raise ValueError(f"{' and '.join(str(path) for path in paths if path.name == name)}: two documents of one name")


def _sorted(found: dict[Path, IngestedDocument | str | None]) -> Ingested:
    return Ingested(
        {path.name: one for path, one in found.items() if isinstance(one, IngestedDocument)},
        {path.name: one for path, one in found.items() if isinstance(one, str)},
    )


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class _Told(Protocol):
    def __call__(self, documents: int, pages: int) -> None: ...


@contextmanager
def _progress(documents: int) -> Iterator[_Told]:
    """A bar in a terminal; elsewhere a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    said = time.monotonic()

    def say(done: int, pages: int) -> None:
        nonlocal said
        if time.monotonic() - said > _KEPT:
            said = time.monotonic()
            log.info("%d of %s ingested, %s", done, _counted(documents, "document"), _counted(pages, "page"))

    if not sys.stderr.isatty():
        yield say
        return
    columns = (
        TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pages]:,} pages"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=documents, pages=0)
        yield lambda documents, pages: bar.update(task, completed=documents, pages=pages)
