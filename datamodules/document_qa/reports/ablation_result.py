"""Stores the result of a test under an ablation, beside the other results of the same run."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from datamodules.document_qa.types.question import SOURCES, Question
from datamodules.document_qa.views.ablation import Ablation
from engine.io.atomic_file import write_atomically
from engine.statistics.confidence_intervals import MetricEstimate

FOLDER = "ablation"

WHOLE: Ablation = "none"
"""The ablation "none", with which the others are compared."""

Identity = Mapping[str, str]
"""Properties that comparable tests have in common: {name: value}."""


class AblationResult(NamedTuple):
    """Accuracies of a test by evidence source; "" stands for all questions."""

    ablate: str
    identity: Identity
    accuracy: Mapping[str, MetricEstimate]
    question_only: Mapping[str, MetricEstimate]  # of the same model without documents; may be empty
    random: Mapping[str, float]  # of a random choice
    majority: Mapping[str, float] = {}  # of the most frequent answer of the training set; may be empty


def select_result(ablate: Ablation, identity: Identity, metrics: Mapping[str, MetricEstimate]) -> AblationResult:
    """Select the stored metrics of a test, see `compute_metrics`."""
    return AblationResult(
        ablate,
        dict(identity),
        _metrics_by_source("", metrics),
        _metrics_by_source("baseline/question_only/", metrics),
        {source: estimate.value for source, estimate in _metrics_by_source("baseline/random/", metrics).items()},
        {source: estimate.value for source, estimate in _metrics_by_source("baseline/majority/", metrics).items()},
    )


def hash_questions(questions: Iterable[Question]) -> str:
    """Hash questions, their order, right answers and answer types, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for item in questions:
        content = [item.id, item.document, item.question, item.options, item.answer, item.right, item.also_right]
        digest.update(json.dumps([*content, item.answer_type, item.source]).encode())
    return digest.hexdigest()[:16]


def write_result(folder: Path, result: AblationResult) -> Path:
    """Write `ABLATE.json` into a folder, which is created if necessary.

    Raises:
        OSError: the file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.ablate}.json"
    text = json.dumps(result._asdict(), indent=2, ensure_ascii=False)
    write_atomically(path, text.encode())
    return path


def read_results(folder: Path) -> list[AblationResult]:
    """Read all results of a folder, in the order of Ablation.

    Raises:
        ValueError: a file was not written by write_result; the message names it.
    """
    paths = (folder / f"{name}.json" for name in get_args(Ablation))
    return [_read(path) for path in paths if path.is_file()]


def _read(path: Path) -> AblationResult:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return AblationResult(
            content["ablate"], content["identity"], _figures(content["accuracy"]), _figures(content["question_only"]),
            content["random"], content.get("majority", {}),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not an ablation result ({error!r}); delete it and test again") from error


def _metrics_by_source(prefix: str, metrics: Mapping[str, MetricEstimate]) -> dict[str, MetricEstimate]:
    names: dict[str, str] = {"": f"{prefix}accuracy", **{source: f"{prefix}{source}/accuracy" for source in SOURCES}}
    return {source: metrics[name] for source, name in names.items() if name in metrics}


def _figures(content: Mapping[str, Any]) -> dict[str, MetricEstimate]:
    return {source: MetricEstimate(*estimate) for source, estimate in content.items()}
