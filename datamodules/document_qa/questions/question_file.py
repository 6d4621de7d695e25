"""Files of questions, in the forms that they are published in."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from datamodules.document_qa.question import Question
from datamodules.document_qa.questions.mmlongbench import is_mmlongbench, read_mmlongbench
from datamodules.document_qa.questions.mp_docvqa import is_mp_docvqa, read_mp_docvqa
from datamodules.document_qa.questions.question_record import question_of

QuestionFormat = Literal["auto", "questions", "mp_docvqa", "mmlongbench"]

LARGEST = 2**30
"""Bytes of the largest file."""


class AskedDocument(NamedTuple):
    """A document as a file of questions names it."""

    name: str
    images: tuple[str, ...] = ()  # names of its pages' pictures, without endings; none: `name` is a file or a folder
    origin: str = ""  # of what it is a part: parts of one document are never split up


class QuestionFile(NamedTuple):
    """The questions of a file, in its order."""

    path: Path
    questions: tuple[Question, ...]
    ids: tuple[str | int, ...]  # as they were written
    documents: Mapping[str, AskedDocument]  # by name


def read_question_file(path: str | Path, format: QuestionFormat = "auto") -> QuestionFile:
    """
    Args:
        path: the file, in UTF-8.
        format: `questions` (a JSON object on each line, see question_record), `mp_docvqa` (the JSON of MP-DocVQA),
            `mmlongbench` (the JSON of MMLongBench-Doc); `auto` goes by what is in it.

    Raises:
        ValueError: names file and line (or record) of what cannot be used, or says that there is nothing.
        OSError: the file cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file of questions")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path}: found {path.stat().st_size:,} bytes, expected at most {LARGEST:,}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: found a byte that is not UTF-8 at {error.start}, expected UTF-8") from error
    whole = _whole(text)
    read = _READERS[format] if format != "auto" else _recognised(whole, path)
    ids, questions, documents = read(text, whole, path)
    if not questions:
        raise ValueError(f"{path}: found no question")
    _check_ids(questions)
    return QuestionFile(path, tuple(questions), tuple(ids), documents)


_Read = tuple[Sequence[str | int], Sequence[Question], Mapping[str, AskedDocument]]
_Reader = Callable[[str, Any, Path], _Read]


def _lines(text: str, whole: Any, path: Path) -> _Read:
    ids, questions = [], []
    # Not splitlines, which also splits at characters that JSON allows in a text.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{where}: not JSON ({error}); expected an object on each line") from error
            questions.append(question_of(record, where))
            ids.append(record["id"])
    names = dict.fromkeys(question.document for question in questions)
    return ids, questions, {name: AskedDocument(name) for name in names}


def _mp_docvqa(text: str, whole: Any, path: Path) -> _Read:
    if not is_mp_docvqa(whole):
        raise ValueError(f'{path}: expected the JSON of MP-DocVQA: an object with "data", a list of questions')
    questions, pages = read_mp_docvqa(whole, path)
    ids = [record["questionId"] for record in whole["data"]]
    return ids, questions, {name: AskedDocument(name, *one) for name, one in pages.items()}


def _mmlongbench(text: str, whole: Any, path: Path) -> _Read:
    if not isinstance(whole, list):
        raise ValueError(f"{path}: expected the JSON of MMLongBench-Doc: a list of questions with doc_id")
    questions = read_mmlongbench(whole, path)
    names = dict.fromkeys(question.document for question in questions)
    return [question.id for question in questions], questions, {name: AskedDocument(name) for name in names}


_READERS: dict[str, _Reader] = {"questions": _lines, "mp_docvqa": _mp_docvqa, "mmlongbench": _mmlongbench}


def _whole(text: str) -> Any:
    """The value of a file that is one JSON value; None of one with a value on each line."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _recognised(whole: Any, path: Path) -> _Reader:
    if is_mp_docvqa(whole):
        return _mp_docvqa
    if is_mmlongbench(whole):
        return _mmlongbench
    if isinstance(whole, list):
        raise ValueError(
            f"{path}: found one JSON list without doc_id; expected an object on each line, or MMLongBench-Doc's list"
        )
    return _lines


def _check_ids(questions: Sequence[Question]) -> None:
    seen: dict[str, str] = {}
    for question in questions:
        if question.id in seen:
            raise ValueError(f"{question.where}: the id {question.id!r} is also that of {seen[question.id]}")
        seen[question.id] = question.where
