"""Manuals in files, to be looked at, or to be asked about as a user's own documents are."""

import json
import logging
import os
from pathlib import Path
from typing import IO, Any

from datamodules.document_qa.manuals.manual_questions import ManualQuestions
from datamodules.document_qa.manuals.pdf import pdf_bytes
from datamodules.document_qa.question import Question
from engine.durable_file import write_beside

log = logging.getLogger("lockstep")

DOCUMENTS, QUESTIONS, _MADE_BY = "documents", "questions.jsonl", "made_by.json"

_LETTERS = "ABCD"


def write_manuals(questions: ManualQuestions, folder: Path, made_by: str) -> None:
    """Writes all manuals of a split and the questions about them; nothing where they are there already.

        FOLDER/documents/test-0.pdf
        FOLDER/questions.jsonl       as DocumentQuestions reads them

    Safe to interrupt and to repeat: every file appears whole, `made_by.json` last.

    Args:
        made_by: all that they depend on.
    """
    mark = folder / _MADE_BY
    if mark.is_file() and mark.read_text(encoding="utf-8") == made_by:
        log.info("%s holds these %d manuals already: nothing to do", folder, questions.manuals)
        return
    (folder / DOCUMENTS).mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    names, lines = set(), []
    for index in range(len(questions)):
        manual = questions.document(0, index)
        if manual.name not in names:
            names.add(manual.name)
            _write(folder / DOCUMENTS / manual.name, pdf_bytes(manual))
        (question,) = questions.questions(0, index)
        lines.append(json.dumps(_record(question)) + "\n")
    for old in (folder / DOCUMENTS).glob("*.pdf"):
        if old.name not in names:
            old.unlink()
    _write(folder / QUESTIONS, "".join(lines).encode())
    _write(mark, made_by.encode())
    log.info("%s: %d manuals as PDFs, %d questions about them in %s", folder, len(names), len(lines), QUESTIONS)


def _record(question: Question) -> dict[str, Any]:
    """As in the files of CCKS 2025, with what is known beyond that."""
    record: dict[str, Any] = {"id": question.id, "question": question.question, "document": question.document}
    if question.options:
        options = zip(_LETTERS, question.options, strict=True)
        record["options"] = [f"{letter}. {option}" for letter, option in options]
        record["answer"] = _LETTERS[question.right or 0]
    else:
        record["answer"] = question.answer
    return {
        **record,
        "answer_type": question.answer_type,
        "evidence_pages": list(question.evidence_pages),
        "evidence_sources": [question.source],
    }


def _write(path: Path, content: bytes) -> None:
    def write(file: IO[bytes]) -> None:
        file.write(content)

    os.replace(write_beside(path, write, lambda hidden: None), path)
