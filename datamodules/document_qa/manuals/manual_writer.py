"""Writes manuals as PDFs, with their questions, in the format of a user's own documents."""

import json
import logging
from pathlib import Path
from typing import Any

from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.types.question import OPTION_LETTERS, Question
from engine.io.atomic_file import write_atomically

log = logging.getLogger("lockstep")

DOCUMENTS, QUESTIONS, _MADE_BY = "documents", "questions.jsonl", "made_by.json"


def write_manuals(questions: ManualQuestionSet, folder: Path, made_by: str) -> None:
    """Write all manuals of a split and their questions, unless the same manuals exist.

        FOLDER/documents/test-0.pdf
        FOLDER/questions.jsonl       as DocumentQuestions reads them

    Calls may be interrupted and repeated: files appear by a rename, `made_by.json` last.

    Args:
        questions: the questions of the split.
        folder: target folder.
        made_by: identity of the settings, which is compared with `made_by.json`.
    """
    mark = folder / _MADE_BY
    if mark.is_file() and mark.read_text(encoding="utf-8") == made_by:
        log.info("%s already contains these %d manuals: nothing to do", folder, questions.manuals)
        return
    (folder / DOCUMENTS).mkdir(parents=True, exist_ok=True)
    # From here on the folder is incomplete, until the mark is written again.
    mark.unlink(missing_ok=True)
    names, lines = set(), []
    for index in range(len(questions)):
        manual = questions.document(0, index)
        if manual.name not in names:
            names.add(manual.name)
            write_atomically(folder / DOCUMENTS / manual.name, manual.pdf())
        (question,) = questions.questions(0, index)
        lines.append(json.dumps(_record(question)) + "\n")
    for old in (folder / DOCUMENTS).glob("*.pdf"):
        if old.name not in names:
            old.unlink()
    write_atomically(folder / QUESTIONS, "".join(lines).encode())
    write_atomically(mark, made_by.encode())
    log.info("%s: %d manuals as PDFs, %d questions about them in %s", folder, len(names), len(lines), QUESTIONS)


def _record(question: Question) -> dict[str, Any]:
    """Return a record in the format of CCKS 2025, with additional fields."""
    record: dict[str, Any] = {"id": question.id, "question": question.question, "document": question.document}
    if question.options:
        options = zip(OPTION_LETTERS, question.options, strict=False)
        record["options"] = [f"{letter}. {option}" for letter, option in options]
        record["answer"] = OPTION_LETTERS[question.right or 0]
    else:
        record["answer"] = question.answer
    return {
        **record,
        "answer_type": question.answer_type,
        "evidence_pages": list(question.evidence_pages),
        "evidence_sources": [question.source],
    }
