"""Writes the reports of a test or a prediction into a run's folder."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.grading.baselines import MostFrequentAnswers
from datamodules.document_qa.grading.evaluation_metrics import compute_metrics, unique_by_sample
from datamodules.document_qa.grading.grade import answer_text, grade
from datamodules.document_qa.reports.ablation_report import write_ablation_report
from datamodules.document_qa.reports.ablation_result import FOLDER, WHOLE, hash_questions, select_result, write_result
from datamodules.document_qa.reports.answers_report import write_answers_report
from datamodules.document_qa.reports.prediction_record import parse_prediction_line
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, QuestionSet
from datamodules.document_qa.views.ablation import Ablation, apply_ablation
from engine.telemetry.graded_answers import GradedAnswer, write_graded_answers

log = logging.getLogger("lockstep")

_CHUNK = 1 << 22  # bytes

_DOCUMENTS: Mapping[Ablation, str] = {
    "none": "whole",
    "figure": "without figures",
    "table": "without tables",
    "text": "without texts",
    "shuffled_figure": "with the figures of other documents",
    "question_only": "none",
}


def write_test_reports(
    folder: Path,
    question_set: QuestionSet,
    records: Sequence[AnswerRecord],
    ablate: Ablation,
    checkpoint: str | None,
    settings: Mapping[str, str],
    most_frequent: MostFrequentAnswers | None = None,
) -> None:
    """Write the answers of a test with their pages, and a comparison with the run's other ablations.

    Writes `test_report.html` (under an ablation `ablation/ABLATE_report.html`), `ablation/ABLATE.json` and
    `ablation.html`, and of whole documents `answers-test.jsonl`.

    Args:
        folder: the run's folder.
        question_set: the questions.
        records: the records of all ranks.
        ablate: content that was removed from documents.
        checkpoint: path of the tested checkpoint; None for untrained weights.
        settings: other settings that the answers depend on; only tests with equal settings are compared.
        most_frequent: see `compute_metrics`.

    Raises:
        OSError: the files cannot be written.
        ValueError: a file in `ablation/` is invalid.
    """
    records = unique_by_sample(records)
    questions = {record.sample: _question(question_set, record.sample) for record in records}
    metrics = compute_metrics(questions.__getitem__, records, most_frequent, retrieved=ablate != "question_only")
    shown = _AblatedQuestionSet(question_set, ablate)
    about = {"run": folder.name, "checkpoint": checkpoint or "untrained weights", "documents": _DOCUMENTS[ablate]}
    report_folder, stem = (folder, "test_report") if ablate == WHOLE else (folder / FOLDER, f"{ablate}_report")
    log.info(
        "report: %s",
        write_answers_report(
            folder=report_folder,
            stem=stem,
            title="Test report",
            question_set=shown,
            records=records,
            metrics=metrics,
            about=about,
        ),
    )
    # No right answer is known, so there is nothing to compare.
    if "accuracy" not in metrics:
        return
    if ablate == WHOLE:
        write_graded_answers(folder, "test/accuracy", _graded_answers(questions, records))
    identity = {
        "checkpoint": _checkpoint_name(checkpoint),
        "questions": f"{len(records)} ({hash_questions(questions.values())})",
        **settings,
    }
    write_result(folder / FOLDER, select_result(ablate, identity, metrics))
    del about["documents"]
    report = write_ablation_report(folder, folder / FOLDER, ablate, about)
    if len(report.results) > 1:
        log.info("%s", report.table())
    for other in report.others:
        log.info("not compared, as its checkpoint, questions or settings differ: %s", other.ablate)
    log.info("report: %s", folder / "ablation.html")


def write_prediction_report(
    folder: Path, question_set: QuestionSet, predictions: Path, checkpoint: str | None, ablate: Ablation = "none"
) -> None:
    """Write `prediction_report.html`: the answers in a file of predictions, with their pages.

    Raises:
        OSError: the files cannot be written.
    """
    # Every line ends with a line break. splitlines() would also split at rare separators within a text.
    lines = predictions.read_text(encoding="utf-8").split("\n")[:-1]
    records, unanswered = [], {}
    for sample, line in enumerate(map(json.loads, lines)):
        record = parse_prediction_line(sample, line)
        if record is None:
            unanswered[sample] = line["why"]
        else:
            records.append(record)
    questions = {record.sample: _question(question_set, record.sample) for record in records}
    metrics = compute_metrics(questions.__getitem__, records, retrieved=ablate != "question_only")
    about = {"run": folder.name, "checkpoint": checkpoint or "untrained weights"}
    title = "Prediction report"
    path = write_answers_report(
        folder=folder,
        stem="prediction_report",
        title=title,
        question_set=question_set,
        records=records,
        metrics=metrics,
        about=about,
        unanswered=unanswered,
    )
    log.info("report: %s", path)


def _graded_answers(questions: Mapping[int, Question], records: Sequence[AnswerRecord]) -> Iterator[GradedAnswer]:
    """Yield the answers to questions whose right answer is known."""
    for record in records:
        question = questions[record.sample]
        right = grade(question, record.whole).right
        if right is not None:
            asked = "\n".join([question.question, *question.options])
            expected = question.answer or (question.options[question.right] if question.right is not None else "")
            yield GradedAnswer(record.sample, asked, expected, answer_text(question, record.whole), right)


def hash_checkpoint(checkpoint: str) -> str:
    """Return a hash of a checkpoint file, or of all files of a checkpoint folder."""
    path, digest = Path(checkpoint), hashlib.sha256()
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()) if path.is_dir() else [path]:
        digest.update(file.relative_to(path).as_posix().encode())
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()[:16]


class _AblatedQuestionSet:
    """A question set with the documents under an ablation."""

    def __init__(self, questions: QuestionSet, ablate: Ablation) -> None:
        self._set, self._ablate = questions, ablate
        self.differs = ablate == "shuffled_figure"  # documents of samples get different figures
        self.questions = questions.questions

    def document(self, epoch: int, index: int) -> Document:
        document = self._set.document(epoch, index)
        return apply_ablation(document, self._ablate, lambda: self._set.another_document(epoch, index))


def _question(question_set: QuestionSet, sample: int) -> Question:
    (question,) = question_set.questions(0, sample)
    return question


def _checkpoint_name(checkpoint: str | None) -> str:
    return "untrained" if checkpoint is None else f"{Path(checkpoint).name} ({hash_checkpoint(checkpoint)})"
