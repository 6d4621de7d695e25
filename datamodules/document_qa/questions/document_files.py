"""The files that documents are made from, which questions call by their names."""

import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from datamodules.document_qa.ingestion.sources import IMAGE_SUFFIXES, kind_of
from datamodules.document_qa.questions.question_file import AskedDocument, QuestionFile
from engine.durable_file import beside, remove_leftovers

PAGES = "pages"
"""Folder, in that of what `prepare` writes, of documents that are given as pictures of pages in one folder of all."""


def document_files(file: QuestionFile, folder: Path, root: Path) -> dict[str, Path]:
    """{document: its file, or a folder of its page images}; as `ingestion.ingest` takes them.

    A name may lack its ending, where one document alone is called so.

    Args:
        file: the questions.
        folder: of their documents.
        root: of what `prepare` writes.

    Raises:
        ValueError: there is no such document; names file and line of a question about it.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected the documents of {file.path}")
    where = {question.document: question.where for question in reversed(file.questions)}
    stems: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stems.setdefault(path.stem, []).append(path)
    found = {}
    for name, document in file.documents.items():
        if document.images:
            found[name] = root / PAGES / _folder_name(document, folder)
        else:
            found[name] = _file(name, folder, stems, where[name])
    return found


def link_pages(file: QuestionFile, folder: Path, root: Path) -> None:
    """Makes a folder of each document that is given as page images; of those that are there already, nothing.

    The images are linked where the file system has links, and else copied. Of several processes one does it.

    Raises:
        ValueError: there is no such image; names file and record.
        OSError: the folder cannot be written.
    """
    documents = [document for document in file.documents.values() if document.images]
    if not documents:
        return
    where = {question.document: question.where for question in reversed(file.questions)}
    found = (path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    images = {name: path for path in found for name in (path.stem, path.name)}
    from filelock import FileLock

    (root / PAGES).mkdir(parents=True, exist_ok=True)
    with FileLock(root / PAGES / ".lock"):
        remove_leftovers(root / PAGES, "")
        for document in documents:
            for image in document.images:
                if image not in images:
                    raise ValueError(f"{where[document.name]}: there is no image {image} in {folder}, {_expected()}")
            target = root / PAGES / _folder_name(document, folder)
            pages = {f"{page:05}{images[image].suffix}": images[image] for page, image in enumerate(document.images, 1)}
            if not _holds(target, pages):
                _make(target, pages)


def _file(name: str, folder: Path, stems: Mapping[str, list[Path]], where: str) -> Path:
    path = folder / name
    if kind_of(path) is not None:
        return path
    if path.exists():
        raise ValueError(
            f"{where}: {path} is no document; expected a PDF, a Markdown file, an image or a folder of page images"
        )
    called = [one for one in stems.get(name, []) if kind_of(one) is not None]
    if len(called) == 1:
        return called[0]
    there = [one.name for found in stems.values() for one in found if kind_of(one) is not None]
    close = difflib.get_close_matches(name, there, n=1)
    meant = f"; is it {close[0]}?" if close else f", which has {len(there)} others" if there else ", which has none"
    several = f": {' and '.join(one.name for one in called)} are called so" if called else meant
    raise ValueError(f"{where}: there is no document {name!r} in {folder}{several}")


def _expected() -> str:
    return f"expected one with an ending such as {', '.join(IMAGE_SUFFIXES)}"


def _folder_name(document: AskedDocument, folder: Path) -> str:
    """It tells documents of other folders apart, and can be read."""
    identity = "\n".join([str(folder.absolute()), document.name, *document.images])
    readable = re.sub(r"[^\w.-]+", "_", document.name)[:60].strip("_.")
    return f"{readable}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _holds(folder: Path, pages: Mapping[str, Path]) -> bool:
    try:
        if {path.name for path in folder.iterdir()} != pages.keys():
            return False
        return all(_alike(folder / name, image) for name, image in pages.items())
    except OSError:
        return False


def _alike(page: Path, image: Path) -> bool:
    found, expected = page.stat(), image.stat()
    return (found.st_size, found.st_mtime_ns) == (expected.st_size, expected.st_mtime_ns)


def _make(folder: Path, pages: Mapping[str, Path]) -> None:
    """Writes the folder beside and renames it, so that nobody sees a part of it."""
    new = beside(folder)
    new.mkdir()
    for name, image in pages.items():
        try:
            os.link(image, new / name)
        except OSError:
            shutil.copy2(image, new / name)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(new, folder)
