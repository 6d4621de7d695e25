"""Finds the files of the documents that questions name."""

import difflib
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from datamodules.document_qa.ingestion.sources import IMAGE_SUFFIXES, document_kind
from datamodules.document_qa.questions.question_file import DocumentReference, QuestionFile
from engine.io.atomic_file import remove_leftovers, temp_path
from engine.io.file_hash import hash_samples
from engine.io.gitignored_folder import add_gitignore

PAGES = "pages"
"""Subfolder of the prepared data with documents that are given as page images in a common folder."""

_SAMPLES = 3, 4096
"""Number and bytes of the blocks in which an image is compared with its copy: first, middle and last."""


def document_files(file: QuestionFile, folder: Path, root: Path) -> dict[str, Path]:
    """Find the files of documents: {document: file, or folder of page images}, as `ingest` expects them.

    A name may lack its extension if it is unambiguous.

    Args:
        file: the questions.
        folder: folder of their documents.
        root: folder of the prepared data.

    Raises:
        ValueError: a document does not exist; the message names file and line of a question about it.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected the folder of the documents of {file.path}")
    # Reversed, so that of each document the first question remains, which messages name.
    where = {question.document: question.where for question in reversed(file.questions)}
    stems: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stems.setdefault(path.stem, []).append(path)
    files = {}
    for name, document in file.documents.items():
        if document.images:
            files[name] = root / PAGES / _folder_name(document, folder)
        else:
            files[name] = _file(name, folder, stems, where[name])
    return files


def link_pages(file: QuestionFile, folder: Path, root: Path) -> None:
    """Create a folder for each document that is given as page images, unless it exists.

    Images are hard-linked if the file system supports it, otherwise copied. A lock excludes other processes.

    Raises:
        ValueError: an image does not exist; the message names file and record.
        OSError: the folder cannot be written.
    """
    documents = [document for document in file.documents.values() if document.images]
    if not documents:
        return
    where = {question.document: question.where for question in reversed(file.questions)}
    images: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in IMAGE_SUFFIXES:
            # Question files name page images with or without their extension.
            for name in {path.stem, path.name}:
                images.setdefault(name, []).append(path)
    from filelock import FileLock

    (root / PAGES).mkdir(parents=True, exist_ok=True)
    add_gitignore(root / PAGES)
    with FileLock(root / PAGES / ".lock"):
        remove_leftovers(root / PAGES, "")
        for document in documents:
            for image in document.images:
                if image not in images:
                    raise ValueError(
                        f"{where[document.name]}: found no image {image} in {folder}, {_expected_extensions()}"
                    )
                if len(images[image]) > 1:
                    names = " and ".join(path.name for path in images[image][:2])
                    raise ValueError(
                        f"{where[document.name]}: image {image} is ambiguous in {folder}: {names}; remove one of them"
                    )
            target = root / PAGES / _folder_name(document, folder)
            pages = {
                f"{page:05}{images[image][0].suffix}": images[image][0] for page, image in enumerate(document.images, 1)
            }
            if not _is_complete(target, pages):
                _make(target, pages)


def _file(name: str, folder: Path, stems: Mapping[str, list[Path]], where: str) -> Path:
    path = folder / name
    if document_kind(path) is not None:
        return path
    if path.exists():
        raise ValueError(
            f"{where}: {path} is not a document; expected a PDF, a Markdown file, an image or a folder of page images"
        )
    matching = [path for path in stems.get(name, []) if document_kind(path) is not None]
    if len(matching) == 1:
        return matching[0]
    available = [path.name for paths in stems.values() for path in paths if document_kind(path) is not None]
    close = difflib.get_close_matches(name, available, n=1)
    hint = f"; did you mean {close[0]}?" if close else f", which has {len(available)} documents"
    problem = f": the name is ambiguous: {' and '.join(path.name for path in matching)}" if matching else hint
    raise ValueError(f"{where}: found no document {name!r} in {folder}{problem}")


def _expected_extensions() -> str:
    return f"expected a file with an extension such as {', '.join(IMAGE_SUFFIXES)}"


def _folder_name(document: DocumentReference, folder: Path) -> str:
    """Return a readable folder name that is unique over all folders of documents."""
    identity = "\n".join([str(folder.absolute()), document.name, *document.images])
    readable = re.sub(r"[^\w.-]+", "_", document.name)[:60].strip("_.")
    digest = hashlib.sha256(identity.encode(errors="backslashreplace"))  # a name may not be UTF-8
    return f"{readable}-{digest.hexdigest()[:12]}"


def _is_complete(folder: Path, pages: Mapping[str, Path]) -> bool:
    try:
        if {path.name for path in folder.iterdir()} != pages.keys():
            return False
        return all(_is_same_image(folder / name, image) for name, image in pages.items())
    except OSError:
        return False


def _is_same_image(page: Path, image: Path) -> bool:
    """Return whether a page is a link to an image or a copy of it.

    Samples of a copy are compared, too: the image may have been replaced by another with the same time. The last bytes
    of compressed images with different content differ.
    """
    found, expected = page.stat(), image.stat()
    if os.path.samestat(found, expected):
        return True
    if (found.st_size, found.st_mtime_ns) != (expected.st_size, expected.st_mtime_ns):
        return False
    return hash_samples(page, *_SAMPLES) == hash_samples(image, *_SAMPLES)


def _make(folder: Path, pages: Mapping[str, Path]) -> None:
    """Create the folder under a temporary name and rename it, so that it never exists in part."""
    new = temp_path(folder)
    new.mkdir()
    for name, image in pages.items():
        try:
            os.link(image, new / name)
        except OSError:
            shutil.copy2(image, new / name)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(new, folder)
