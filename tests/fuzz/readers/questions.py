"""Question files of document QA. The reference reads ids, texts, documents and pages; answers have a weaker oracle."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation, record_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_KEYS = ("id", "question", "document", "options", "answer", "evidence_pages", "evidence_sources", "answer_type")


class Questions(Reader):
    """Rows of (id, question, document, pages), in the order of the file.

    What an answer means depends on its type and on the options: of it, only that a written answer is kept is checked.
    """

    def seeds(self) -> Sequence[Input]:
        records: list[dict[str, Any]] = [
            {
                "id": "q1",
                "question": "Which fuse?",
                "document": "a.pdf",
                "options": ["A. F1", "B. F2"],
                "answer": "B",
                "evidence_pages": [3, 1],
                "evidence_sources": ["table"],
            },
            {
                "id": 2,
                "question": " How heavy is the motor? ",
                "document": "b",
                "answer": "12 kg",
                "answer_type": "unit",
            },
            {"id": "é", "question": "Where?", "document": "m/c.md", "answer": None, "answer_type": "unanswerable"},
            {"id": "4", "question": "Which colour?", "document": "a.pdf", "options": ["red", "blue"], "answer": "red"},
        ]
        lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in records) + "\n"
        docvqa = {
            "dataset_name": "MP-DocVQA",
            "data": [
                {
                    "questionId": 7,
                    "question": "What is the date?",
                    "doc_id": "d",
                    "page_ids": ["d_p0", "d_p1"],
                    "answers": ["1 May", "May 1"],
                    "answer_page_idx": 1,
                    "data_split": "val",
                }
            ],
        }
        bench = [
            {
                "doc_id": "r.pdf",
                "doc_type": "report",
                "question": "How many?",
                "answer": "3",
                "evidence_pages": "[2, 4]",
                "evidence_sources": "['Table']",
                "answer_format": "Int",
            }
        ]
        return [
            Input("questions.jsonl", lines.encode()),
            Input("val.json", json.dumps(docvqa).encode()),
            Input("samples.json", json.dumps(bench).encode()),
        ]

    def mutate(self, random: Random, seed: Input) -> Input:
        found = super().mutate(random, seed)
        if seed.path.endswith(".json") and random.random() < 0.6:
            keys = ("doc_id", "question", "answer", "answers", "page_ids", "answer_page_idx", "questionId")
            return seed._replace(data=record_mutation(keys)(random, seed.data))
        return found

    def restructure(self, random: Random, data: bytes) -> bytes:
        return line_record_mutation(_KEYS)(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.document_qa.questions.question_file import read_question_file

        found = read_question_file(path)
        return [
            (question.id, question.question, question.document, list(question.evidence_pages), question.answer is None)
            for question in found.questions
        ]

    def reference(self, path: Path) -> Any:
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        try:
            document = plain_json.parse(data)
        except InvalidInput:
            document = None
        if isinstance(document, dict) and "data" in document:
            return [_docvqa(record) for record in _list(document["data"])]
        if isinstance(document, list):
            return [_bench(record) for record in document]
        rows = [
            _line(record) for _, record in plain_json.lines(b"\n".join(data.splitlines()))
        ]  # a carriage return ends a line, too
        if len({row[0] for row in rows}) < len(rows):
            raise InvalidInput("an id occurs twice")
        return rows

    def agrees(self, actual: Any, expected: Any) -> bool:
        """Return whether the parts that the reference has are the same; None in a reference is not compared."""
        return len(actual) == len(expected) and all(
            other is None or own == other
            for row, reference in zip(actual, expected, strict=True)
            for own, other in zip(row, reference, strict=True)
        )


READERS = {"questions": Questions}


def _line(record: Any) -> tuple[Any, ...]:
    if not isinstance(record, dict):
        raise InvalidInput("a line is no object")
    pages = record.get("evidence_pages")
    pages = [] if pages is None else _list(pages)
    if type(record.get("id")) not in (int, str) or any(type(page) is not int or page < 1 for page in pages):
        raise InvalidInput("a line has no id, or wrong pages")
    texts = [record.get(key) for key in ("question", "document")]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise InvalidInput("a line has no question or no document")
    answer = record.get("answer")
    unanswered = None if answer is None or answer == "" or str(answer).isspace() else False
    return str(record["id"]).strip(), texts[0].strip(), texts[1].strip(), sorted(set(pages)), unanswered


def _docvqa(record: Any) -> tuple[Any, ...]:
    """Names of documents are derived from pages, and an answer may be missing: neither is compared."""
    if not isinstance(record, dict) or not isinstance(record.get("question"), str):
        raise InvalidInput("a record has no question")
    return str(record.get("questionId")).strip(), record["question"].strip(), None, None, None


def _bench(record: Any) -> tuple[Any, ...]:
    """The format has no ids: the reader numbers the questions."""
    if not isinstance(record, dict) or not isinstance(record.get("question"), str):
        raise InvalidInput("a record has no question")
    if not isinstance(record.get("doc_id"), str):
        raise InvalidInput("a record has no doc_id")
    return None, record["question"].strip(), record["doc_id"].strip(), None, None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"found {type(value).__name__} instead of a list")
    return value
