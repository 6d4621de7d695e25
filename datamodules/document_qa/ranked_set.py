"""Questions and all pages of their documents, each once, to be ranked when all have been read."""

import json
import logging
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from datamodules.document_qa.batch import Candidates, QuestionsAndPages, Ranking
from datamodules.document_qa.document import Document
from datamodules.document_qa.prompt import where
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.document_qa.ranking_figures import FoundPages
from datamodules.document_qa.retrieval.rankings import FILE
from datamodules.document_qa.retrieval_reader import Read, RetrievalReader
from datamodules.multimodal.chat_sets import drawn
from datamodules.multimodal.images import collate_views
from datamodules.multimodal.packing import one_per_row
from datamodules.multimodal.unusable import UnusableSample
from engine.bad_samples import usable
from engine.durable_file import flush_folder, write_beside
from engine.sampling import Draw

log = logging.getLogger("lockstep")


class Unit(NamedTuple):
    """A question, or a page, of an evaluation."""

    part: int  # the set that it is of
    sample: int  # the question's number there, or that of one about the page's document
    page: int = 0  # its number; 0: it is the question


class RankedSet(Dataset[QuestionsAndPages]):
    """Questions and all pages of their documents, one document after the other, each once, in batches of any size.

    Args:
        parts: sets of questions; the ids of all questions differ. Of documents with the same name within a set there is
            one.
        reader: makes chats of them.
        leave_out: leave questions and pages out that cannot be used; otherwise they are errors.
        number: how many of the questions and pages, in whole documents, at least one; None for all.
    """

    def __init__(
        self, parts: Sequence[QuestionSet], reader: RetrievalReader, leave_out: bool = False, number: int | None = None
    ) -> None:
        self.parts, self.reader, self.leave_out, self.number = parts, reader, leave_out, number
        self._last: tuple[tuple[int, int], Document] | None = None  # its pages follow one another

    def first(self, number: int) -> "RankedSet":
        """The first documents alone."""
        fewer = RankedSet(self.parts, self.reader, self.leave_out, number)
        if len(fewer) > number:
            log.warning("WARNING: so few batches hold %d of the first document's pages; only these are ranked", number)
        return fewer

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, draw: Draw) -> QuestionsAndPages:
        indices = drawn(draw)
        read, indices, left_out = usable(indices[indices < len(self)], self._read, self.leave_out)
        is_page = np.array([self._units[index].page > 0 for index in indices], np.bool_)
        questions, pages = ([one for one, of in zip(read, is_page, strict=True) if of == kind] for kind in (0, 1))
        return QuestionsAndPages(
            one_per_row([one.chat for one in questions], indices[~is_page], self.reader.pad),
            one_per_row([one.chat for one in pages], indices[is_page], self.reader.pad),
            collate_views([one.views for one in pages], self.reader.builder.layout),
            left_out,
        )

    @cached_property
    def candidates(self) -> list[Candidates]:
        """Of each question, in the order of the parts."""
        return sorted(self._made[1], key=lambda one: self._units[one.question])

    def figures(self, rankings: Sequence[Ranking]) -> dict[str, float]:
        """{name: figure}, see FoundPages, of how questions' pages were ranked."""
        found = FoundPages()
        for ranking in rankings:
            unit = self._units[ranking.question]
            found.add(self._question(unit), self._document(unit.part, unit.sample), ranking.pages)
        return found.figures

    def write(self, folder: Path, rankings: Sequence[Ranking]) -> None:
        """Writes them where a reader finds them: see retrieval/rankings.py.

        Raises:
            ValueError: two questions have the same id.
        """
        lines: dict[str, str] = {}
        for ranking in rankings:
            question = self._question(self._units[ranking.question])
            if question.id in lines:
                raise ValueError(
                    f"{where(question)}: another question that is ranked has this id, so nobody could tell whose "
                    "ranking is whose: give each question of data.init_args.rank an id of its own"
                )
            line = {"id": question.id, "document": question.document}
            line |= {"pages": ranking.pages, "scores": ranking.scores}
            lines[question.id] = json.dumps(line) + "\n"
        path, text = folder / FILE, "".join(lines.values())
        os.replace(write_beside(path, lambda file: file.write(text.encode()), lambda _: None), path)
        flush_folder(folder)
        log.info("pages ranked for %s questions: %s", f"{len(lines):,}", path)

    def _question(self, unit: Unit) -> Question:
        return self.parts[unit.part].questions(0, unit.sample)[0]

    @property
    def _units(self) -> list[Unit]:
        return self._made[0]

    @cached_property
    def _made(self) -> tuple[list[Unit], list[Candidates]]:
        units: list[Unit] = []
        candidates: list[Candidates] = []
        for part, samples in self._documents():
            pages = self._pages(part, samples[0])
            if self.number is not None and units and len(units) + len(samples) + pages > self.number:
                break
            start = len(units)
            units += [Unit(part, sample) for sample in samples]
            numbers = tuple(range(len(units), len(units) + pages))
            units += [Unit(part, samples[0], page) for page in range(1, pages + 1)]
            candidates += [Candidates(start + place, numbers) for place in range(len(samples))]
        return units, candidates

    def _documents(self) -> list[tuple[int, list[int]]]:
        """Of each one its set and the questions about it."""
        found: dict[tuple[int, str | int], list[int]] = {}
        for part, questions in enumerate(self.parts):
            for sample in range(len(questions)):
                found.setdefault((part, self._name(part, sample)), []).append(sample)
        return [(part, samples) for (part, _), samples in found.items()]

    def _name(self, part: int, sample: int) -> str | int:
        try:
            return self.parts[part].questions(0, sample)[0].document
        except UnusableSample:  # it is left out, or an error, when it is drawn
            return sample

    def _pages(self, part: int, sample: int) -> int:
        try:
            return len(self._document(part, sample).pages)
        except UnusableSample:
            return 0

    def _document(self, part: int, sample: int) -> Document:
        if self._last is None or self._last[0] != (part, sample):
            self._last = (part, sample), self.reader.document(self.parts[part], 0, sample)
        return self._last[1]

    def _read(self, number: int) -> Read:
        unit = self._units[number]
        document = self._document(unit.part, unit.sample)
        return self.reader.page(document, unit.page) if unit.page else self.reader.question(self._question(unit))
