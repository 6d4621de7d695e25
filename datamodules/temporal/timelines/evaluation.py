"""Evaluates answers about timelines: questions, grades, and the report of a test."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.timelines.dataset import TimelineQuestions
from datamodules.temporal.timelines.grading import OUTCOMES, grade
from datamodules.temporal.timelines.recorded.predict_questions import TimelinePredictDataset
from datamodules.temporal.timelines.reports.timeline_reports import report_test, timeline_preview
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from datamodules.temporal.timelines.text.facts import Task
from engine.telemetry.sample_previews import SamplePreview

log = logging.getLogger("lockstep")


class TimelineEvaluation(MultimodalDataModule):
    """Base of ResourceTimelines, which sets its attributes."""

    outcomes = OUTCOMES
    kinds = tuple(task.value for task in Task)
    baselines = ("rules",)

    synthesis: SyntheticTimelines
    timelines: str | None

    @property
    def _graded_dataset(self) -> TimelineQuestions:
        """Dataset that is evaluated, with known answers (in all stages except `predict`)."""
        source = self.evaluated
        assert isinstance(source, TimelineQuestions)
        return source

    @override
    def grade(self, sample: int, text: str) -> dict[str, tuple[float, float]]:
        source = self._graded_dataset
        return grade(source.sample(0, sample).facts, text, source.timelines.notation)

    @override
    def kind(self, sample: int) -> str:
        return self._graded_dataset.sample(0, sample).facts.task.value

    def question_text(self, sample: int) -> str:
        """Return what a sample asks, as people read it."""
        return self._graded_dataset.sample(0, sample).question.replace(PLACEHOLDER, "").strip()

    def right_answer(self, sample: int) -> str:
        """Return the reference answer to a sample."""
        return self._graded_dataset.sample(0, sample).answer

    def trained_steps(self) -> int:
        """Return the number of steps of the longest training timeline."""
        return self.synthesis.max_steps

    def evaluated_steps(self) -> int:
        """Return the number of steps of the longest timeline of the evaluated set."""
        source = self.evaluated
        if isinstance(source, TimelinePredictDataset):
            return max((len(row.curves[0]) for row in source.rows), default=0)
        return self.synthesis.max_steps

    def options(self, sample: int) -> tuple[str, ...]:
        """Return no options: all answers are generated."""
        return ()

    def option_tokens(self, option: str) -> tuple[int, ...]:
        """Return the tokens of an option; there is none."""
        raise NotImplementedError("questions about timelines have no options")

    def chance(self, sample: int) -> dict[str, tuple[float, float]]:
        """Return no points: there are no options to guess among."""
        return {}

    def sample_preview(self, sample: int, text: str, blind: str) -> SamplePreview:
        """Return a preview of a sample of the evaluated set with the model's answers."""
        return timeline_preview(self._graded_dataset, sample, text, blind)

    @override
    def describe(self, row: int) -> dict[str, Any]:
        source = self.evaluated
        assert isinstance(source, TimelinePredictDataset)
        return source.rows[row].record

    def write_test_report(self, folder: str, answers: Sequence[tuple[int, str, str]]) -> None:
        """Write a report of a test: each question with its curve, the reference and the answers.

        Args:
            folder: folder of the run.
            answers: (sample, answer, answer without the series), in the order of the samples.
        """
        assert self.trainer is not None  # the test ran under a trainer
        about = {
            "run": Path(folder).name,
            "checkpoint": str(self.trainer.ckpt_path),
            "timelines": self.timelines or f"synthetic, seed {self.synthesis.seed}",
        }
        path = report_test(Path(folder), self._graded_dataset, answers, about, self.timelines)
        log.info("report: %s", path)
