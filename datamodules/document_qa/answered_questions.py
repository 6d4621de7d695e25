"""What is made of the answers to the questions that are being evaluated: figures, lines and reports."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from datamodules.document_qa.ablation import Ablation
from datamodules.document_qa.batch import AnswerRecord, Said
from datamodules.document_qa.grading.baselines import UsualAnswers, asked_in, usual_answers
from datamodules.document_qa.grading.grade import grade
from datamodules.document_qa.grading.summary import summary
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.document_qa.reports.prediction_line import prediction_line
from datamodules.document_qa.reports.run_reports import write_prediction_report, write_test_reports
from datamodules.multimodal.image_datamodule import ImageDataModule
from engine.examples import Example

Split = Literal["train", "validation", "test", "predict"]

_DECIDES = (
    "context", "retriever", "answer_with", "list_options", "option_orders", "prompt_language", "system", "max_tiles",
    "fit",
)  # fmt: skip
"""Settings that decide about the answers of a test, beside the checkpoint and the questions."""


class AnsweredQuestions(ImageDataModule):
    """A DataModule whose questions are about documents. What they are, and how they are asked, a subclass says."""

    ablate: Ablation
    """What documents are shown without."""

    @abstractmethod
    def question_set(self, split: Split) -> QuestionSet:
        """The questions of a split; to train on up to `questions_per_chat` a sample, else one."""

    @property
    def evaluated(self) -> Any:
        stage = self.trainer.state.stage
        name = {"test": "test_set", "predict": "predict_set"}.get(str(stage and stage.value), "validation_set")
        return getattr(self, name)

    @property
    def evaluated_questions(self) -> QuestionSet:
        """The questions that are being answered."""
        return self.evaluated.readings.questions

    def question(self, sample: int) -> Question:
        """A question that is being answered."""
        (question,) = self.evaluated_questions.questions(0, sample)
        return question

    def describe(self, row: int) -> dict[str, Any]:
        """What `predict` writes beside an answer."""
        question = self.question(row)
        options = {"options": list(question.options)} if question.options else {}
        return {"id": question.id, "question": question.question, "document": question.document, **options}

    def predicted(self, record: AnswerRecord) -> dict[str, Any]:
        """What `predict` writes of an answer."""
        return {**self.describe(record.sample), **prediction_line(self.question(record.sample), record)}

    def example(self, record: AnswerRecord) -> Example:
        """A question with the page that is most likely to answer it, as the model is shown it, altered and ablated."""
        question = self.question(record.sample)
        alone, right = record.question_only, grade(question, record.whole).right
        return Example(
            name=f"{record.sample} {question.source or ''}".strip(),
            question="\n".join([question.question, *question.options]),
            expected=question.answer or "",
            answer=said_in_words(question, record.whole),
            right=None if right is None else right == 1.0,
            picture=self._best_page(record),
            blind=None if alone is None else said_in_words(question, alone),
        )

    def _best_page(self, record: AnswerRecord) -> bytes | None:
        if not record.pages:
            return None
        best = next((page for page in record.ranked if page in record.pages), record.pages[0])
        readings = self.evaluated.readings
        return self.picture(
            (record.sample, best), lambda: [readings.reading(0, record.sample).document.picture(best)]
        )

    def summary(self, records: Sequence[AnswerRecord]) -> dict[str, float]:
        """{name: figure} of all records of an evaluation."""
        return summary(self.question, records, self._usual, retrieved=self.ablate != "question_only")

    def write_test_report(self, folder: Path, records: Sequence[AnswerRecord]) -> None:
        """Into a run's folder: the answers of a test, and how they compare with other ablations.

        Args:
            records: of all processes.
        """
        settings = {name: str(getattr(self, name)) for name in _DECIDES}
        asked = self.evaluated_questions
        write_test_reports(folder, asked, records, self.ablate, self._checkpoint, settings, self._usual)

    def write_prediction_report(self, folder: Path, predictions: Path) -> None:
        """Into a run's folder: the answers of a file of predictions, with their pages.

        Args:
            predictions: what `predict` has written, in whole.
        """
        write_prediction_report(folder, self.evaluated_questions, predictions, self._checkpoint, self.ablate)

    @property
    def _checkpoint(self) -> str | None:
        """That is evaluated; None: untrained weights."""
        return None if self.trainer.ckpt_path is None else str(self.trainer.ckpt_path)

    @cached_property
    def _usual(self) -> UsualAnswers:
        """What is answered most often in training."""
        return usual_answers(asked_in(self.question_set("train")))


def said_in_words(question: Question, said: Said) -> str:
    """The option that was chosen, or what was written."""
    return question.options[said.chosen] if question.options else said.text
