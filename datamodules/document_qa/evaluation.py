"""Evaluates answers: metrics, prediction lines and reports."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from typing_extensions import override

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.grading.baselines import MostFrequentAnswers, first_questions, most_frequent_answers
from datamodules.document_qa.grading.evaluation_metrics import metric_values
from datamodules.document_qa.grading.grade import answer_text, grade
from datamodules.document_qa.reports.prediction_record import prediction_line
from datamodules.document_qa.reports.run_reports import write_prediction_report, write_test_reports
from datamodules.document_qa.retrieval.ranking_dataset import PageRankingDataset
from datamodules.document_qa.types.question import Question, QuestionSet, SplitName
from datamodules.document_qa.views.ablation import Ablation
from datamodules.multimodal.image_datamodule import ImageDataModule
from engine.telemetry.sample_previews import SamplePreview


@runtime_checkable
class ReaderSettings(Protocol):
    """Settings of a DocumentReader that its data depend on. A PageRetriever does not have them."""

    loss: str
    """Name of the training loss; `contrastive_options` needs a chat for each option."""
    evidence_questions: int
    """Number of test questions whose evidence is searched."""
    predict_evidence: bool
    """Whether `predict` searches the evidence of its questions."""


class AnswerEvaluation(ImageDataModule):
    """Base of DataModules that evaluates answers. A subclass provides the questions and builds the data sets."""

    ablate: Ablation
    """Content that is removed from documents."""

    @abstractmethod
    def question_set(self, split: SplitName) -> QuestionSet:
        """Return the questions of a split: up to `questions_per_chat` per training sample, otherwise one per sample."""

    @abstractmethod
    def answer_settings(self) -> dict[str, str]:
        """Return the settings that the answers of a test depend on, besides the checkpoint and the questions."""

    @property
    @override
    def evaluated(self) -> Any:
        return self.evaluated_set

    @override
    def sample_name(self, sample: int) -> str:
        of_pages = self.evaluated if isinstance(self.evaluated, PageRankingDataset) else self.evaluated_questions
        return of_pages.name(sample)

    @property
    def evaluated_questions(self) -> QuestionSet:
        """The questions under evaluation."""
        return self.evaluated.sample_builder.questions

    def question(self, sample: int) -> Question:
        """Return a question under evaluation."""
        (question,) = self.evaluated_questions.questions(0, sample)
        return question

    @override
    def describe(self, row: int) -> dict[str, Any]:
        question = self.question(row)
        options = {"options": list(question.options)} if question.options else {}
        return {"id": question.id, "question": question.question, "document": question.document, **options}

    def prediction_fields(self, record: AnswerRecord) -> dict[str, Any]:
        """Return the line that `predict` writes for an answer."""
        return {**self.describe(record.sample), **prediction_line(self.question(record.sample), record)}

    def sample_preview(self, record: AnswerRecord) -> SamplePreview:
        """Return a preview: a question, its answers and the best-ranked page as the model sees it."""
        question = self.question(record.sample)
        alone, right = record.question_only, grade(question, record.whole).right
        return SamplePreview(
            name=f"{record.sample} {question.source or ''}".strip(),
            question="\n".join([question.question, *question.options]),
            expected=question.answer or "",
            answer=answer_text(question, record.whole),
            right=None if right is None else right == 1.0,
            picture=self._best_page(record),
            blind=None if alone is None else answer_text(question, alone),
        )

    def _best_page(self, record: AnswerRecord) -> bytes | None:
        if not record.pages:
            return None
        # The best-ranked page may be too long for the context.
        best = next((page for page in record.ranked if page in record.pages), record.pages[0])
        sample_builder = self.evaluated.sample_builder
        return self.preview_images(
            (record.sample, best), lambda: [sample_builder.build(0, record.sample).document.picture(best)]
        )

    def summary(self, records: Sequence[AnswerRecord]) -> dict[str, float]:
        """Compute {metric name: value} of all records of an evaluation."""
        return metric_values(self.question, records, self._most_frequent, retrieved=self.ablate != "question_only")

    def write_test_report(self, folder: Path, records: Sequence[AnswerRecord]) -> None:
        """Write the report of a test and its comparison with other ablations.

        Args:
            folder: the run's folder.
            records: the records of all ranks.
        """
        write_test_reports(
            folder=folder,
            question_set=self.evaluated_questions,
            records=records,
            ablate=self.ablate,
            checkpoint=self._checkpoint,
            settings=self.answer_settings(),
            most_frequent=self._most_frequent,
        )

    def write_prediction_report(self, folder: Path, predictions: Path) -> None:
        """Write the report of a prediction, with the pages of the answers.

        Args:
            folder: the run's folder.
            predictions: the complete file that `predict` has written.
        """
        write_prediction_report(folder, self.evaluated_questions, predictions, self._checkpoint, self.ablate)

    @property
    def _checkpoint(self) -> str | None:
        """Path of the evaluated checkpoint; None for untrained weights."""
        assert self.trainer is not None  # which evaluates
        return None if self.trainer.ckpt_path is None else str(self.trainer.ckpt_path)

    @cached_property
    def _most_frequent(self) -> MostFrequentAnswers:
        """The most frequent answers of the training set."""
        return most_frequent_answers(first_questions(self.question_set("train")))
