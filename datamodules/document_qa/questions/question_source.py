"""What a configuration says of a file of questions and its documents, and both once they are read."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from datamodules.document_qa.ingestion.ingest import Ingested, ingest, ingested
from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.question import Question
from datamodules.document_qa.questions.document_files import document_files, link_pages
from datamodules.document_qa.questions.question_file import QuestionFormat, read_question_file

CACHE = "ingested"
"""Folder, in that of what `prepare` writes, of the documents."""

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class QuestionSource:
    """Questions in a file, and their documents.

    Args:
        questions: the file.
        documents: folder of the documents that the questions name: PDFs, Markdown files, images, folders of page images; of mp_docvqa the folder of all page images.
        format: `questions` (an object on each line: id, question, document, and options, answer, evidence_pages, evidence_sources, answer_type where they are known), `mp_docvqa` (the JSON of MP-DocVQA), `mmlongbench` (the JSON of MMLongBench-Doc); `auto` goes by what is in the file.
    """  # noqa: E501

    questions: str
    documents: str
    format: QuestionFormat = "auto"

    def ingest(self, root: Path, settings: IngestionSettings) -> Ingested:
        """Ingests the documents that are asked about into `root`, if they are not there.

        Returns:
            the documents, and those that are broken.

        Raises:
            ValueError: a question cannot be used, a document is not there or (if such stop it) broken.
        """
        file = read_question_file(self.questions, self.format)
        link_pages(file, Path(self.documents), root)
        files = document_files(file, Path(self.documents), root)
        return ingest(sorted(set(files.values())), root / CACHE, settings)

    def read(self, root: Path, settings: IngestionSettings, keep_all: bool = False) -> "ReadQuestions":
        """The questions with their documents, which have been ingested; those about broken ones are left out.

        Args:
            keep_all: keep these, too, so that each question has its line; see ReadQuestions.broken.

        Raises:
            ValueError: as of `ingest`; or documents have not been ingested.
        """
        file = read_question_file(self.questions, self.format)
        files = document_files(file, Path(self.documents), root)
        found = ingested(sorted(set(files.values())), root / CACHE, settings)
        documents = {
            name: IngestedDocument(name, found.documents[path.name].folder)
            for name, path in files.items()
            if path.name in found.documents
        }
        broken = {
            name: found.broken[path.name] for name, path in files.items() if keep_all and path.name in found.broken
        }
        asked = [question.document for question in file.questions]
        kept = [place for place, name in enumerate(asked) if name in documents or name in broken]
        lost = sum(name not in documents for name in asked)
        if lost == len(asked):
            raise ValueError(f"{self.questions}: all documents that are asked about are broken")
        if lost:
            every = len(file.questions)
            what = "not answered" if keep_all else "left out"
            log.warning("%s: %d of %d questions are about broken documents and %s", file.path, lost, every, what)
        # Ingested documents of the same content and settings lie in the same folder.
        contents = {
            name: (document.folder.name, *_origin(file.documents[name].origin)) for name, document in documents.items()
        }
        return ReadQuestions(
            str(file.path),
            tuple(file.questions[place] for place in kept),
            tuple(file.ids[place] for place in kept),
            documents,
            contents,
            broken,
        )


class ReadQuestions(NamedTuple):
    """Questions and their documents."""

    path: str  # of the file
    questions: tuple[Question, ...]
    ids: tuple[str | int, ...]  # as they were written
    documents: Mapping[str, IngestedDocument]  # by name
    contents: Mapping[str, Sequence[str]]  # of each document; see splits.groups_of
    broken: Mapping[str, str] = MappingProxyType({})  # of documents that are asked about all the same: why

    def about(self, documents: Sequence[str]) -> "ReadQuestions":
        """Those about some of the documents."""
        chosen = set(documents)
        kept = [place for place, question in enumerate(self.questions) if question.document in chosen]
        return self._replace(
            questions=tuple(self.questions[place] for place in kept),
            ids=tuple(self.ids[place] for place in kept),
            documents={name: one for name, one in self.documents.items() if name in chosen},
            contents={name: one for name, one in self.contents.items() if name in chosen},
        )

    @property
    def identity(self) -> str:
        """Of questions and contents: a short text that is another one where anything of them is."""
        asked = [question._replace(where="") for question in self.questions]
        text = repr((asked, sorted((name, *found) for name, found in self.contents.items())))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _origin(origin: str) -> list[str]:
    return [f"origin {origin}"] if origin else []
