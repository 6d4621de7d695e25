"""What a test found out with something taken from the documents, kept beside the other tests of the same run."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from datamodules.document_qa.ablation import Ablation
from datamodules.document_qa.grading.intervals import Figure
from datamodules.document_qa.question import SOURCES, Question
from engine.durable_file import flush_folder, write_beside

FOLDER = "ablation"

WHOLE: Ablation = "none"
"""A test of whole documents, which the others are compared to."""

Identity = Mapping[str, str]
"""What two tests must have in common to be compared: {what: which}."""


class Ablated(NamedTuple):
    """Accuracies of one test, by evidence source, "" being all questions."""

    ablate: str
    identity: Identity
    accuracy: Mapping[str, Figure]
    question_only: Mapping[str, Figure]  # of the same model without a document; may be empty
    random: Mapping[str, float]  # of a random choice
    majority: Mapping[str, float] = {}  # of the most frequent answer of the training set; may be empty


def ablated_figures(ablate: Ablation, identity: Identity, figures: Mapping[str, Figure]) -> Ablated:
    """What is kept of the figures of a test, see grading.summary."""
    return Ablated(
        ablate,
        dict(identity),
        _of("", figures),
        _of("baseline/question_only/", figures),
        {source: figure.value for source, figure in _of("baseline/random/", figures).items()},
        {source: figure.value for source, figure in _of("baseline/majority/", figures).items()},
    )


def questions_identity(questions: Iterable[Question]) -> str:
    """Changes with the questions, their order, their right answers or how these are graded."""
    digest = hashlib.sha256()
    for one in questions:
        told = [one.id, one.document, one.question, one.options, one.answer, one.right, one.also_right]
        digest.update(json.dumps([*told, one.answer_type, one.source]).encode())
    return digest.hexdigest()[:16]


def write_ablated(folder: Path, result: Ablated) -> Path:
    """Writes `ABLATE.json` into a folder, which is made if it is not there.

    Raises:
        OSError: the disk did not take it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.ablate}.json"
    text = json.dumps(result._asdict(), indent=2, ensure_ascii=False)
    os.replace(write_beside(path, lambda file: file.write(text.encode()), lambda _: None), path)
    flush_folder(folder)
    return path


def read_ablated(folder: Path) -> list[Ablated]:
    """All results in a folder, in the order of Ablation.

    Raises:
        ValueError: a file is none of write_ablated's; the message names it.
    """
    paths = (folder / f"{name}.json" for name in get_args(Ablation))
    return [_read(path) for path in paths if path.is_file()]


def _read(path: Path) -> Ablated:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Ablated(
            content["ablate"], content["identity"], _figures(content["accuracy"]), _figures(content["question_only"]),
            content["random"], content.get("majority", {}),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no result of an ablation ({error!r}): remove it and test again") from error


def _of(prefix: str, figures: Mapping[str, Figure]) -> dict[str, Figure]:
    names = {"": f"{prefix}accuracy", **{source: f"{prefix}{source}/accuracy" for source in SOURCES}}
    return {source: figures[name] for source, name in names.items() if name in figures}


def _figures(content: Mapping[str, Any]) -> dict[str, Figure]:
    return {source: Figure(*figure) for source, figure in content.items()}
