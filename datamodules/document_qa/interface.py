"""Defines the interface between the document-QA modules and their data: answering, or ranking pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from datamodules.document_qa.batch import AnswerRecord, Candidates, Ranking
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.interface import ImageChatData, ImageData
from engine.telemetry.sample_previews import SamplePreview


class DocumentData(ImageChatData, Protocol):
    """Data of a DocumentReader. AnswerEvaluation implements it.

    A `sample` is an index in the evaluated set.
    """

    def question(self, sample: int) -> Question:
        """Return the question of a sample."""

    def describe(self, row: int) -> Mapping[str, Any]:
        """Return the fields of a prediction line that identify a question, answered or not."""

    def prediction_fields(self, record: AnswerRecord) -> dict[str, Any]:
        """Return all fields of a prediction line."""

    def sample_preview(self, record: AnswerRecord) -> SamplePreview:
        """Return the preview of a question and its answer."""

    def summary(self, records: Sequence[AnswerRecord]) -> dict[str, float]:
        """Compute {metric name: value} of all records of an evaluation."""

    def write_test_report(self, folder: Path, records: Sequence[AnswerRecord]) -> None:
        """Write the reports of a test into a run's folder.

        Args:
            folder: the run's folder.
            records: the records of all ranks, in the order of the samples.
        """

    def write_prediction_report(self, folder: Path, predictions: Path) -> None:
        """Write the report of a prediction into a run's folder.

        Args:
            folder: the run's folder.
            predictions: the complete file of predictions.
        """


class RankingData(Protocol):
    """Questions and the pages to rank for them. PageRankingDataset implements it."""

    @property
    def candidates(self) -> Sequence[Candidates]:
        """The candidate pages of each question: all pages of its document."""

    def metrics(self, rankings: Sequence[Ranking]) -> dict[str, float]:
        """Compute {metric name: value} of rankings."""

    def write(self, folder: Path, rankings: Sequence[Ranking]) -> None:
        """Write the rankings into a run's folder, where a DocumentReader finds them.

        Raises:
            ValueError: two questions have the same id.
        """


class RetrievalData(ImageData, Protocol):
    """Data of a PageRetriever. DocumentDataModule implements it."""

    @property
    def task(self) -> Literal["answer", "retrieve"]:
        """Purpose of the samples; PageRetriever needs `retrieve`."""

    @property
    def length_groups(self) -> int:
        """Number of groups of similar length that a micro-batch is split into."""

    @property
    def evaluated(self) -> RankingData:
        """The evaluated set."""


if TYPE_CHECKING:  # mypy checks the DataModule against the interface here
    from datamodules.document_qa.datamodule import DocumentDataModule
    from datamodules.document_qa.retrieval.ranking_dataset import PageRankingDataset

    def _provided_to_answer(data: DocumentDataModule) -> DocumentData:
        return data

    def _provided_to_retrieve(data: DocumentDataModule) -> RetrievalData:
        return data

    def _ranked(data: PageRankingDataset) -> RankingData:
        return data
