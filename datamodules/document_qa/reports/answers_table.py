"""Some answers of a validation, as TensorBoard shows texts."""

from collections.abc import Callable, Sequence

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.grading.summary import graded, in_order
from datamodules.document_qa.question import Question

_HEAD = "| question | right answer | answer | confidence | |\n|---|---|---|---|---|"
_LONGEST = 300
_ESCAPES = {ord(sign): f"\\{sign}" for sign in "\\`*_[]|#!~"} | {ord(sign): f"&#{ord(sign)};" for sign in "<>&"}


def answers_table(
    questions: Callable[[int], Question],
    records: Sequence[AnswerRecord],
    first: int = 20,
    relative_tolerance: float = 0.0,
) -> str:
    """The first answers as a table in Markdown.

    Args:
        questions: gives a sample's question.
        records: of all or some samples, in any order.
        first: how many are shown.
        relative_tolerance: of numbers.
    """
    records = in_order(records)[:first]
    rows = [_HEAD]
    for question, record, said, grade in graded([questions(r.sample) for r in records], records, relative_tolerance):
        answer = question.options[said.chosen] if said.options else said.text
        verdict = {None: "", 1.0: "right", 0.0: "wrong"}.get(grade.right, f"{grade.right:.2f}" if grade.right else "")
        cells = (question.question, question.answer or "", answer, f"{said.confidence:.2f}", verdict)
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """A text in one line that Markdown takes for nothing but a text."""
    text = " ".join(text.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST - 1]}…"
    return text.translate(_ESCAPES)
