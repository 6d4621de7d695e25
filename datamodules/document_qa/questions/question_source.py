"""Configures a question file with its documents, and loads its content."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from datamodules.document_qa.ingestion.ingest import IngestedDocuments, document_names, ingest, open_ingested
from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.questions.document_files import document_files, link_pages
from datamodules.document_qa.questions.question_file import QuestionFormat, read_question_file
from datamodules.document_qa.types.question import Question

CACHE = "ingested"
"""Subfolder of the prepared data with ingested documents."""

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class QuestionSource:
    """A question file and its documents.

    Args:
        questions: the file.
        documents: folder of the documents: PDFs, Markdown files, images, folders of page images; for mp_docvqa the
            folder of all page images.
        format: `questions` (an object per line: id, question, document, and optionally options, answer, evidence_pages,
            evidence_sources, answer_type), `mp_docvqa` (the JSON of MP-DocVQA), `mmlongbench` (the JSON of
            MMLongBench-Doc); `auto` detects the format.
    """

    questions: str
    documents: str
    format: QuestionFormat = "auto"

    def ingest(self, root: Path, settings: IngestionSettings) -> IngestedDocuments:
        """Ingest the documents of the questions into `root`, unless they are ingested already.

        Returns:
            The ingested and the broken documents.

        Raises:
            ValueError: a question is invalid, a document is missing, or broken while `on_broken` is `stop`.
        """
        file = read_question_file(self.questions, self.format)
        link_pages(file, Path(self.documents), root)
        files = document_files(file, Path(self.documents), root)
        return ingest(sorted(set(files.values())), root / CACHE, settings)

    def read(self, root: Path, settings: IngestionSettings, keep_all: bool = False) -> "LoadedQuestions":
        """Load questions and ingested documents. Questions about broken documents are skipped.

        Args:
            root: folder of the prepared data.
            settings: the settings of the ingestion.
            keep_all: keep questions about broken documents, see LoadedQuestions.broken.

        Raises:
            ValueError: see `ingest`; or a document has not been ingested.
        """
        file = read_question_file(self.questions, self.format)
        files = document_files(file, Path(self.documents), root)
        paths = sorted(set(files.values()))
        found, names_of = open_ingested(paths, root / CACHE, settings), document_names(paths)
        ingested = {name: names_of[path] for name, path in files.items()}
        documents = {
            name: IngestedDocument(name, found.documents[key].folder)
            for name, key in ingested.items()
            if key in found.documents
        }
        broken = {name: found.broken[key] for name, key in ingested.items() if keep_all and key in found.broken}
        names = [question.document for question in file.questions]
        usable = [index for index, name in enumerate(names) if name in documents or name in broken]
        lost = sum(name not in documents for name in names)
        if lost == len(names):
            raise ValueError(f"{self.questions}: all documents of the questions are broken")
        if lost:
            total = len(file.questions)
            what = "not answered" if keep_all else "skipped"
            log.warning("%s: %d of %d questions are about broken documents and %s", file.path, lost, total, what)
        # Documents with the same content and settings share a folder of the cache.
        contents = {
            name: (document.folder.name, *_origin(file.documents[name].origin)) for name, document in documents.items()
        }
        return LoadedQuestions(
            str(file.path),
            tuple(file.questions[index] for index in usable),
            tuple(file.ids[index] for index in usable),
            documents,
            contents,
            broken,
        )


class LoadedQuestions(NamedTuple):
    """Questions and their documents."""

    path: str  # path of the question file
    questions: tuple[Question, ...]
    ids: tuple[str | int, ...]  # as in the file
    documents: Mapping[str, IngestedDocument]  # by name
    contents: Mapping[str, Sequence[str]]  # of each document; see splits.group_documents
    broken: Mapping[str, str] = MappingProxyType({})  # {document: error} of broken documents whose questions are kept

    def about(self, documents: Sequence[str]) -> "LoadedQuestions":
        """Return the questions about some of the documents."""
        names = set(documents)
        indices = [index for index, question in enumerate(self.questions) if question.document in names]
        return self._replace(
            questions=tuple(self.questions[index] for index in indices),
            ids=tuple(self.ids[index] for index in indices),
            documents={name: document for name, document in self.documents.items() if name in names},
            contents={name: content for name, content in self.contents.items() if name in names},
        )

    @property
    def identity(self) -> str:
        """Hash of questions and contents, 12 hexadecimal digits."""
        questions = [question._replace(where="") for question in self.questions]
        text = repr((questions, sorted((name, *found) for name, found in self.contents.items())))
        # A file name that is not UTF-8 has surrogates, which a strict encoding refuses.
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _origin(origin: str) -> list[str]:
    return [f"origin {origin}"] if origin else []


def shared_documents_message(
    split_questions: LoadedQuestions,
    part: str,
    other_questions: LoadedQuestions,
    other: str,
    shared: list[tuple[str, str]],
) -> str:
    """Return the error message for two files that share documents.

    Args:
        split_questions: questions of an evaluation.
        part: name of their split.
        other_questions: questions of another split.
        other: its name.
        shared: names of each document, in the first and in the second.
    """
    document, same = shared[0]
    first, second = (
        next(question.where for question in file.questions if question.document == name)
        for file, name in ((split_questions, document), (other_questions, same))
    )
    more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
    return (
        f"{first}: document {document!r} of data.init_args.{part} is also in data.init_args.{other}, as {same!r} "
        f"({second}){more}. Scores on training documents do not show generalization: remove its questions from one "
        "file, or set data.init_args.shared_documents to allow"
    )
