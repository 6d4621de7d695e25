"""Tests folders of page images that link to the user's images, also after these are replaced."""

import os
from pathlib import Path

import pytest
from PIL import Image

from datamodules.document_qa.questions import document_files as module
from datamodules.document_qa.questions.document_files import document_files, link_pages
from datamodules.document_qa.questions.question_file import DocumentReference, QuestionFile
from datamodules.document_qa.types.question import Question

TIME = 1_700_000_000_000_000_000


def write_image(path: Path, seed: int) -> None:
    """Write an image of random pixels. All images have the same size in bytes and the same time."""
    path.parent.mkdir(exist_ok=True)
    Image.effect_noise((40, 40), 60 + seed).save(path.with_suffix(".bmp"))
    os.utime(path.with_suffix(".bmp"), ns=(TIME, TIME))


@pytest.fixture
def questions(tmp_path: Path) -> QuestionFile:
    for page in range(2):
        write_image(tmp_path / f"images/p{page}.bmp", page)
    document = DocumentReference("report", ("p0", "p1"))
    question = Question("1", "?", "report", where="questions.json, record 0")
    return QuestionFile(tmp_path / "questions.json", (question,), ("1",), {"report": document})


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "copies"])
def test_an_image_that_was_replaced_with_its_time_is_found(
    tmp_path: Path, questions: QuestionFile, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    if not links:
        monkeypatch.setattr(module.os, "link", refuse)
    root, images = tmp_path / "root", tmp_path / "images"
    link_pages(questions, images, root)
    folder = document_files(questions, images, root)["report"]
    made = folder.stat().st_ino
    link_pages(questions, images, root)
    assert folder.stat().st_ino == made, "what is there is kept"
    (images / "p1.bmp").unlink()
    write_image(images / "p1.bmp", 9)
    link_pages(questions, images, root)
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [
        (images / f"p{page}.bmp").read_bytes() for page in range(2)
    ]
    assert (root / "pages/.gitignore").read_text() == "*\n"
