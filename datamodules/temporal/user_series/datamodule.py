"""Provides the user's own series and questions: a DataModule."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.multimodal.predict_questions import questions_path
from datamodules.temporal.series.datamodule import SeriesDataModule, SeriesOptions, kinds_of
from datamodules.temporal.series.dataset import SeriesChats
from datamodules.temporal.series.series_question import SeriesLimits, SeriesQuestion
from datamodules.temporal.user_series.record_files import read_records
from datamodules.temporal.user_series.record_parser import RecordParser
from datamodules.temporal.user_series.splits import SPLITS, split_files, split_of
from engine.base_options import Unpack
from engine.export.artifacts import DatasetCard
from engine.io.json_records import describe_names

log = logging.getLogger("lockstep")


class QuestionList:
    """Questions in memory, the same in every epoch."""

    def __init__(self, questions: Sequence[SeriesQuestion]) -> None:
        self.all = questions

    def __len__(self) -> int:
        return len(self.all)

    def question(self, epoch: int, index: int) -> SeriesQuestion:
        """Return a question."""
        return self.all[index]

    def name(self, epoch: int, index: int) -> str:
        """Return the index of a question with its file and row."""
        return f"{index} ({self.all[index].where})"


def read_series_questions(path: Path, limits: SeriesLimits, answers: bool) -> list[SeriesQuestion]:
    """Read the questions of a file.

    Args:
        path: the file, see `record_files`.
        limits: largest sizes.
        answers: whether each question needs a reference answer.

    Raises:
        ValueError: the file or a record is invalid; the message names file and line.
        OSError: a file cannot be read.
    """
    parser = RecordParser(path.parent, limits, answers)
    questions = [parser.parse(where, record) for where, record in read_records(path, limits.row_bytes)]
    _warn_of_gaps(questions)
    return questions


def _warn_of_gaps(questions: Sequence[SeriesQuestion]) -> None:
    """Warn of series without any number. A question in which no series has one is refused before."""
    empty = [(question, series) for question in questions for series in question.series if not series.is_measured]
    if empty:
        (first, series), total = empty[0], sum(len(question.series) for question in questions)
        log.warning(
            "%s: the series %s has no number, only gaps; of the %s series of this file, %s have none",
            first.where, describe_names([series.name]), f"{total:,}", f"{len(empty):,}",
        )  # fmt: skip


class SeriesQuestions(SeriesDataModule):
    """Series and questions of the user, from JSONL, JSON, CSV or Parquet files.

    Also reads the files of ChatTS and TimeSeriesExam. All questions are in memory, with 8 bytes for each value.

    Args:
        path: a file, whose records are split by a hash of their key (80 % train, 10 % validation, 10 % test), or a
            folder with files named train, validation and test. See docs/temporal.md for the records.
        questions: file that `predict` answers; its records need no answer.
        limits: largest sizes that are read.
        **batches: see SeriesDataModule, MultimodalDataModule and LockstepDataModule.
    """

    def __init__(
        self,
        path: str | None = None,
        questions: str | None = None,
        limits: SeriesLimits | None = None,
        **batches: Unpack[SeriesOptions],
    ) -> None:
        super().__init__(**batches)
        self.path, self.questions_file = path, questions
        self.limits = limits or SeriesLimits()

    @override
    def dataset_card(self) -> DatasetCard:
        name = "user's series" if self.path is None else Path(self.path).name
        terms = "The series and questions are yours: state here on what terms they may be used."
        return DatasetCard(name, "Questions about time series, with options or open answers.", terms)

    @property
    @override
    def predict_input(self) -> str | None:
        return self.questions_file

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self.examples(self._split("train"))
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._split("validation"))
            self._count_kinds("validation")
        if stage == "test":
            self.test_set = self.questions(self._split("test"))
            self._count_kinds("test")
        if stage == "predict":
            path = questions_path(self.questions_file, "a file of series and questions")
            questions = read_series_questions(path, self.limits, answers=False)
            self.predict_set = self.questions(self.chats(QuestionList(questions)), in_order=True)
            self.kind_names = kinds_of(questions)

    @override
    def prepare(self) -> None:
        """Read all files, refuse invalid files, and log the number of questions of each split."""
        for split in SPLITS:
            chats = self._split(split)
            log.info("%s: %s questions, series of up to %s steps", split, f"{len(chats):,}", f"{chats.longest:,}")

    def _split(self, split: str) -> SeriesChats:
        questions = self._splits.get(split, [])
        if not questions:
            raise ValueError(
                f"data.init_args.path: {self.path} has no question for {split}, expected a file {split}.jsonl (or "
                ".json, .csv, .parquet) in a folder, or more records in one file"
            )
        return self.chats(QuestionList(questions))

    @cached_property
    def _splits(self) -> dict[str, list[SeriesQuestion]]:
        """Questions of each split; all files are read at once, so an invalid file fails before training starts."""
        if self.path is None:
            raise ValueError("data.init_args.path: found null, expected a file or folder of series and questions")
        splits: dict[str, list[SeriesQuestion]] = {}
        for split, files in split_files(Path(self.path)).items():
            for file in files:
                for question in read_series_questions(file, self.limits, answers=True):
                    splits.setdefault(split_of(question) if split == "all" else split, []).append(question)
        return splits

    def _count_kinds(self, split: str) -> None:
        self.kind_names = kinds_of(self._splits.get(split, []))

    @override
    def texts(self) -> Iterator[str]:
        return self.texts_of(self._split("train"))

    def _order_identity(self) -> dict[str, Any]:
        # On a resume within an epoch, the remaining samples must be the same.
        # The content of all questions, because a changed file may keep its name and its number of records.
        digest = hashlib.sha256()
        for question in self._splits.get("train", []):
            series = [(each.name, each.unit, each.step, len(each.values)) for each in question.series]
            digest.update(repr((question.question, question.answer, question.options, series)).encode())
            for each in question.series:
                digest.update(each.values.tobytes())
        return {**super()._order_identity(), "questions": digest.hexdigest()[:12]}
