"""Writes and reads question files in the competition's format."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datamodules.document_qa.questions.question_file import read_question_file
from datamodules.document_qa.types.question import Question

# Both rounds of CCKS 2025: choice with letters, answered by the letter; open, answered in words.
ROUND_1 = {
    "id": 17,
    "question": "在文件中第10页的示意图中，编号为17的部件相对于编号为18的部件的位置关系是？",
    "document": "CN100342976C.pdf",
    "options": ["A. 17位于18的左侧", "B．17位于18的右侧", "C、17位于18的上方", "D. 17位于18的下方"],
    "answer": "B",
    "group": 2,
}
ROUND_2 = {
    "id": "q2",
    "question": "水泵(10)抽取液体后，液体最有可能流向哪个部件？",
    "document": "CN100342976C.pdf",
    "answer": "除尘箱(1)",
}


def write_question_lines(path: Path, *records: str | dict[str, Any]) -> Path:
    """Write a file with a record, or a text as it is, on each line."""
    path.write_text(
        "\n".join(record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records)
    )
    return path


def read_question_lines(folder: Path, *records: str | dict[str, Any]) -> Sequence[Question]:
    """Return the questions of a file of these records in the folder."""
    return read_question_file(write_question_lines(folder / "questions.jsonl", *records)).questions
