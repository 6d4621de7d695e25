"""Reads rankings that `predict` of a PageRetriever has saved."""

from pathlib import Path
from typing import NamedTuple

from engine.io.json_records import describe_names, iterate_lines, parse_located_json
from engine.system.installation import PROGRAM
from engine.system.runs_directory import runs_directory

FILE = "rankings.jsonl"

_FIELDS = {"id", "document", "pages", "scores"}


class SavedRanking(NamedTuple):
    """The saved ranking of a question's pages."""

    document: str  # name of the question's document
    pages: list[int]  # page numbers from 1, best first


def rankings_file(name: str) -> Path:
    """Return the rankings file, given by its path, a run's folder or a run's name.

    Raises:
        ValueError: the file does not exist.
    """
    paths = [Path(name), Path(name) / FILE, runs_directory() / name / FILE]
    for path in paths:
        if path.is_file():
            return path
    raise ValueError(
        f"retriever.rankings: found none of {', '.join(map(str, paths))}; run `{PROGRAM} predict` of a "
        "PageRetriever's run on the same questions"
    )


def read_rankings(path: Path) -> dict[str, SavedRanking]:
    """Read rankings by question id.

    Each line is an object {"id": text, "document": name, "pages": [page numbers from 1, best first],
    "scores": [one per page, descending]}.

    Raises:
        ValueError: a line is invalid; the message names it.
    """
    rankings: dict[str, SavedRanking] = {}
    for number, line in iterate_lines(path, "the ranking of a question per line"):
        where = f"{path}, line {number}"
        question, ranked = _ranking(line, where)
        if question in rankings:
            raise ValueError(f"{where}: question {question!r} occurs a second time")
        rankings[question] = ranked
    if not rankings:
        raise ValueError(f"{path}: is empty, expected one ranking per line")
    return rankings


def _ranking(line: bytes, where: str) -> tuple[str, SavedRanking]:
    record = parse_located_json(where, line)
    if not isinstance(record, dict) or record.keys() != _FIELDS:
        found = describe_names(sorted(record)) if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"{where}: found {found}, expected an object with {', '.join(sorted(_FIELDS))}")
    question, pages, scores = record["id"], record["pages"], record["scores"]
    for name in ("id", "document"):
        if not isinstance(record[name], str):
            raise ValueError(f"{where}: {name} is {record[name]!r}, expected a text")
    # `type` and not isinstance, because a bool is an int.
    if not isinstance(pages, list) or not all(type(page) is int and page > 0 for page in pages):
        raise ValueError(f"{where}: pages is {str(pages)[:80]}, expected a list of numbers from 1")
    if len(set(pages)) < len(pages):
        raise ValueError(f"{where}: pages contains a page twice")
    if not isinstance(scores, list) or not all(type(score) in (int, float) for score in scores):
        raise ValueError(f"{where}: scores is {str(scores)[:80]}, expected a list of numbers")
    if len(scores) != len(pages) or any(first < second for first, second in zip(scores, scores[1:], strict=False)):
        raise ValueError(f"{where}: found {len(scores)} scores of {len(pages)} pages, expected one each, descending")
    return question, SavedRanking(record["document"], pages)
