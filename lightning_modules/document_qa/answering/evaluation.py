"""Evaluates answers to questions about documents."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from datamodules.document_qa.batch import AnswerRecord, EvaluationBatch
from datamodules.document_qa.interface import DocumentData
from engine.distributed.collectives import all_gather_objects
from engine.telemetry.sample_previews import PreviewReservoir, SamplePreview, select_preview_ids
from lightning_modules.document_qa.answering.answerer import QuestionAnswerer
from lightning_modules.multimodal.evaluation.evaluator import EvaluatingTrainer, Evaluator, PredictionLine


class AnsweringModule(Protocol):
    """What a DocumentEvaluation needs of the module. DocumentReader provides it."""

    preview_reservoir: PreviewReservoir[Any]

    @property
    def trainer(self) -> EvaluatingTrainer:
        """The run's trainer."""

    @property
    def data(self) -> DocumentData:
        """The run's data."""

    @property
    def answering(self) -> QuestionAnswerer:
        """Answers the questions of a batch."""


class DocumentEvaluation(Evaluator[AnsweringModule]):
    """Collects the records of all answers; the data compute the metrics from them."""

    main_metric = "accuracy"

    def __init__(self) -> None:
        self._records: list[AnswerRecord] = []
        self._all_records: list[AnswerRecord] = []  # of all ranks, after `compute`

    @override
    def begin(self) -> None:
        self._records, self._all_records = [], []

    @override
    def update(self, module: AnsweringModule, batch: EvaluationBatch) -> None:
        self._records += module.answering.records(batch)

    @override
    def compute(self, module: AnsweringModule) -> dict[str, float]:
        # The ranks of a tensor-parallel group evaluate the same samples.
        by_sample = {record.sample: record for record in chain.from_iterable(all_gather_objects(self._records))}
        self._records = []
        self._all_records = [by_sample[sample] for sample in sorted(by_sample)]
        return module.data.summary(self._all_records)

    @override
    def previews(self, module: AnsweringModule) -> list[Callable[[], SamplePreview]]:
        by_sample = {record.sample: record for record in self._all_records}
        samples = select_preview_ids(by_sample, module.preview_reservoir.number)
        return [partial(module.data.sample_preview, by_sample[sample]) for sample in samples]

    @override
    def report(self, module: AnsweringModule) -> None:
        if module.trainer.is_global_zero:
            module.data.write_test_report(Path(module.trainer.default_root_dir), self._all_records)

    @override
    def predict(self, module: AnsweringModule, batch: EvaluationBatch) -> list[PredictionLine]:
        answered = [
            (record.sample, module.data.prediction_fields(record)) for record in module.answering.records(batch)
        ]
        # A skipped question has a line of its own, so that each line is known by its place in the file.
        skipped = ((row, {**module.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.skipped)
        return sorted([*answered, *skipped], key=lambda line: line[0])
