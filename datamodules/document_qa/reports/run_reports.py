"""What a test and a prediction leave in a run's folder for people to read."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from datamodules.document_qa.ablation import Ablation, ablated
from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.document import Document
from datamodules.document_qa.grading.baselines import UsualAnswers
from datamodules.document_qa.grading.summary import figures, in_order
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.document_qa.reports.ablation_report import write_ablation_report
from datamodules.document_qa.reports.ablation_result import (
    FOLDER,
    WHOLE,
    ablated_figures,
    questions_identity,
    write_ablated,
)
from datamodules.document_qa.reports.answers_report import write_answers_report
from datamodules.document_qa.reports.prediction_line import record_of

log = logging.getLogger("lockstep")

_CHUNK = 1 << 22  # bytes


def write_test_reports(
    folder: Path,
    asked: QuestionSet,
    records: Sequence[AnswerRecord],
    ablate: Ablation,
    checkpoint: str | None,
    settings: Mapping[str, str],
    usual: UsualAnswers | None = None,
) -> None:
    """The answers of a test with their pages, and its accuracies beside those of the same run's other ablations.

    Writes `test_report.html` (of an ablation `ablation/ABLATE_report.html`), `ablation/ABLATE.json`, `ablation.html`.

    Args:
        folder: the run's.
        records: of all processes.
        checkpoint: that was tested; None for untrained weights.
        settings: what else decides about the answers; tests are compared that have all of it in common.
        usual: see grading.summary.

    Raises:
        OSError: the disk did not take it.
        ValueError: a file in `ablation/` is no result.
    """
    records = in_order(records)
    questions = {record.sample: _question(asked, record.sample) for record in records}
    found = figures(questions.__getitem__, records, usual, retrieved=ablate != "question_only")
    shown = _AsShown(asked, ablate)
    about = {"run": folder.name, "checkpoint": checkpoint or "untrained weights", "documents": _DOCUMENTS[ablate]}
    place, stem = (folder, "test_report") if ablate == WHOLE else (folder / FOLDER, f"{ablate}_report")
    log.info("report: %s", write_answers_report(place, stem, "Test report", shown, records, found, about))
    if "accuracy" not in found:
        return
    identity = {
        "checkpoint": _named(checkpoint),
        "questions": f"{len(records)} ({questions_identity(questions.values())})",
        **settings,
    }
    write_ablated(folder / FOLDER, ablated_figures(ablate, identity, found))
    del about["documents"]
    report = write_ablation_report(folder, folder / FOLDER, ablate, about)
    if len(report.results) > 1:
        log.info("%s", report.table())
    for other in report.others:
        log.info("not compared, as it is of another checkpoint, or of other questions or settings: %s", other.ablate)
    log.info("report: %s", folder / "ablation.html")


def write_prediction_report(
    folder: Path, asked: QuestionSet, predictions: Path, checkpoint: str | None, ablate: Ablation = "none"
) -> None:
    """`prediction_report.html`: the answers in a file of predictions, a line each, with their pages.

    Raises:
        OSError: the disk did not take it.
    """
    lines = predictions.read_text(encoding="utf-8").split("\n")[:-1]
    records, unanswered = [], {}
    for sample, line in enumerate(map(json.loads, lines)):
        record = record_of(sample, line)
        if record is None:
            unanswered[sample] = line["why"]
        else:
            records.append(record)
    questions = {record.sample: _question(asked, record.sample) for record in records}
    found = figures(questions.__getitem__, records, retrieved=ablate != "question_only")
    about = {"run": folder.name, "checkpoint": checkpoint or "untrained weights"}
    title = "Prediction report"
    path = write_answers_report(folder, "prediction_report", title, asked, records, found, about, unanswered)
    log.info("report: %s", path)


def checkpoint_identity(checkpoint: str) -> str:
    """A hash of a checkpoint's file, or of all files of its folder."""
    path, digest = Path(checkpoint), hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]:
        digest.update(file.relative_to(path).as_posix().encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:16]


_DOCUMENTS: Mapping[Ablation, str] = {
    "none": "whole",
    "figure": "without figures",
    "table": "without tables",
    "text": "without texts",
    "shuffled_figure": "with the figures of other documents",
    "question_only": "none",
}


class _AsShown:
    """Questions whose documents are those that an ablation shows."""

    def __init__(self, questions: QuestionSet, ablate: Ablation) -> None:
        self._set, self._ablate = questions, ablate
        self.differs = ablate == "shuffled_figure"  # each question's document has figures of its own
        self.questions = questions.questions

    def document(self, epoch: int, index: int) -> Document:
        document = self._set.document(epoch, index)
        return ablated(document, self._ablate, lambda: self._set.another_document(epoch, index))


def _question(asked: QuestionSet, sample: int) -> Question:
    (question,) = asked.questions(0, sample)
    return question


def _named(checkpoint: str | None) -> str:
    return "untrained" if checkpoint is None else f"{Path(checkpoint).name} ({checkpoint_identity(checkpoint)})"
