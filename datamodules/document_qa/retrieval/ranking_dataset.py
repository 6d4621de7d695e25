"""Provides questions and all pages of their documents as a data set, for ranking."""

import json
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from datamodules.document_qa.batch import Candidates, QuestionsAndPages, Ranking
from datamodules.document_qa.prompt.prompt import question_label
from datamodules.document_qa.retrieval.encoder_inputs import EncoderInput, EncoderInputBuilder
from datamodules.document_qa.retrieval.ranking_metrics import PageRankingMetrics
from datamodules.document_qa.retrieval.saved_rankings import FILE
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, QuestionSet
from datamodules.multimodal.chat_dataset import sample_indices
from datamodules.multimodal.images.tiling import collate_views
from datamodules.multimodal.text.packing import one_per_row
from engine.data.errors import BadSampleError
from engine.data.sample_loading import load_samples
from engine.data.samplers import MicroBatchRequest
from engine.io.atomic_file import write_atomically

log = logging.getLogger("lockstep")


class QuestionOrPage(NamedTuple):
    """A question or a page of the data set."""

    part: int  # index of the question set
    sample: int  # index of the question; of a page, the index of a question about its document
    page: int = 0  # page number; 0 for a question


class PageRankingDataset(Dataset[QuestionsAndPages]):
    """Questions and all pages of their documents, each once, document after document, in batches of any size.

    Args:
        parts: question sets; question ids are unique over all sets. Within a set, a document is identified by its name.
        input_builder: encodes questions and pages.
        skip_bad: skip bad questions and pages; otherwise they raise.
        number: number of questions and pages, rounded down to whole documents, at least one; None for all.
    """

    def __init__(
        self,
        parts: Sequence[QuestionSet],
        input_builder: EncoderInputBuilder,
        skip_bad: bool = False,
        number: int | None = None,
    ) -> None:
        self.parts, self.input_builder, self.skip_bad, self.number = parts, input_builder, skip_bad, number
        self._last: tuple[tuple[int, int], Document] | None = None  # pages of a document are read in succession

    def first(self, number: int) -> "PageRankingDataset":
        """Return the data set of the first documents."""
        # Whole documents, because a question is ranked among all pages of its document.
        fewer = PageRankingDataset(self.parts, self.input_builder, self.skip_bad, number)
        if len(fewer) > number:
            log.warning("the batches hold only %d pages and questions of the first document", number)
        return fewer

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, request: MicroBatchRequest) -> QuestionsAndPages:
        indices = sample_indices(request)
        read, indices, skipped = load_samples(indices[indices < len(self)], self._read, self.skip_bad)
        is_page = np.array([self._units[index].page > 0 for index in indices], np.bool_)
        questions, pages = ([item for item, of in zip(read, is_page, strict=True) if of == kind] for kind in (0, 1))
        return QuestionsAndPages(
            one_per_row([question.chat for question in questions], indices[~is_page], self.input_builder.pad),
            one_per_row([page.chat for page in pages], indices[is_page], self.input_builder.pad),
            collate_views([page.views for page in pages], self.input_builder.context_builder.layout),
            skipped,
        )

    @cached_property
    def candidates(self) -> list[Candidates]:
        """The candidate pages of each question, in the order of the question sets."""
        return sorted(self._units_and_candidates[1], key=lambda candidates: self._units[candidates.question])

    def metrics(self, rankings: Sequence[Ranking]) -> dict[str, float]:
        """Compute {metric name: value} of rankings, see PageRankingMetrics."""
        ranking_metrics = PageRankingMetrics()
        for ranking in rankings:
            unit = self._units[ranking.question]
            ranking_metrics.add(self._question(unit), self._document(unit.part, unit.sample), ranking.pages)
        return ranking_metrics.metrics

    def write(self, folder: Path, rankings: Sequence[Ranking]) -> None:
        """Write the rankings as saved_rankings.py reads them.

        Raises:
            ValueError: two questions have the same id.
        """
        lines: dict[str, str] = {}
        for ranking in rankings:
            question = self._question(self._units[ranking.question])
            if question.id in lines:
                raise ValueError(
                    f"{question_label(question)}: another ranked question has the same id, so rankings cannot be "
                    "assigned to questions; give each question of data.init_args.rank a unique id"
                )
            line = {
                "id": question.id,
                "document": question.document,
                "pages": ranking.pages,
                "scores": ranking.scores,
            }
            lines[question.id] = json.dumps(line) + "\n"
        path, text = folder / FILE, "".join(lines.values())
        write_atomically(path, text.encode())
        log.info("pages ranked for %s questions: %s", f"{len(lines):,}", path)

    def name(self, index: int) -> str:
        """Return the name of a question, or of a page by its document's first question, for messages."""
        unit = self._units[index]
        page = f", page {unit.page} of its document" if unit.page else ""
        return f"{self.parts[unit.part].name(unit.sample)}{page}"

    def _question(self, unit: QuestionOrPage) -> Question:
        return self.parts[unit.part].questions(0, unit.sample)[0]

    @property
    def _units(self) -> list[QuestionOrPage]:
        return self._units_and_candidates[0]

    @cached_property
    def _units_and_candidates(self) -> tuple[list[QuestionOrPage], list[Candidates]]:
        units: list[QuestionOrPage] = []
        candidates: list[Candidates] = []
        for part, samples in self._documents():
            pages = self._pages(part, samples[0])
            if self.number is not None and units and len(units) + len(samples) + pages > self.number:
                break
            start = len(units)
            units += [QuestionOrPage(part, sample) for sample in samples]
            numbers = tuple(range(len(units), len(units) + pages))
            units += [QuestionOrPage(part, samples[0], page) for page in range(1, pages + 1)]
            candidates += [Candidates(start + offset, numbers) for offset in range(len(samples))]
        return units, candidates

    def _documents(self) -> list[tuple[int, list[int]]]:
        """Return (index of the question set, indices of the questions) of each document."""
        found: dict[tuple[int, str | int], list[int]] = {}
        for part, questions in enumerate(self.parts):
            for sample in range(len(questions)):
                found.setdefault((part, self._name(part, sample)), []).append(sample)
        return [(part, samples) for (part, _), samples in found.items()]

    def _name(self, part: int, sample: int) -> str | int:
        try:
            return self.parts[part].questions(0, sample)[0].document
        except BadSampleError:  # reported when the sample is drawn
            return sample

    def _pages(self, part: int, sample: int) -> int:
        try:
            return len(self._document(part, sample).pages)
        except BadSampleError:
            return 0

    def _document(self, part: int, sample: int) -> Document:
        if self._last is None or self._last[0] != (part, sample):
            self._last = (part, sample), self.input_builder.document(self.parts[part], 0, sample)
        return self._last[1]

    def _read(self, number: int) -> EncoderInput:
        unit = self._units[number]
        document = self._document(unit.part, unit.sample)
        return (
            self.input_builder.page(document, unit.page)
            if unit.page
            else self.input_builder.question(self._question(unit))
        )
