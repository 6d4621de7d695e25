"""Answers questions about documents as `predict` does, and shows the page and the region that an answer depends on."""

import math
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from commands.answers.answer_blocks import AnswerBlock, Bar, Bars, Note, Picture, Pictures, Table, Text
from commands.answers.answer_service import (
    MEGABYTE,
    AnswerService,
    Example,
    InputField,
    UploadedFile,
    UserInputError,
    UserQuestion,
)
from commands.answers.families.option_field import OPTIONS, read_options
from commands.answers.families.uploaded_documents import MAX_PAGES, SUFFIXES, UploadedDocuments
from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.datamodule import DocumentDataModule
from datamodules.document_qa.grading.abstention import is_abstention
from datamodules.document_qa.grading.grade import answer_text
from datamodules.document_qa.grading.page_recall import strongest_evidence
from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.questions.dataset import FileQuestionSet
from datamodules.document_qa.questions.question_record import parse_question
from datamodules.document_qa.reports.embedded_page_images import page_data_url
from datamodules.document_qa.reports.prediction_record import shares
from datamodules.document_qa.retrieval.settings import WITH_RANKINGS
from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from datamodules.document_qa.types.question import Question as DocumentQuestion
from datamodules.document_qa.user_documents import DocumentQuestions
from engine.data.errors import BadSampleError
from engine.data.samplers import MicroBatchRequest
from lightning_modules.document_qa.reader_module import DocumentReader

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_FILES, _EXAMPLES, _OTHER_PAGES = 8, 6, 6
_SMALL = (240, 240)
_BOX = (220, 30, 30)


class _Answered(NamedTuple):
    """What the model answers from a single document: the record with its evidence, and the text."""

    document: IngestedDocument
    record: AnswerRecord
    text: str

    @property
    def abstains(self) -> bool:
        return is_abstention(self.text)


class DocumentAnswers(AnswerService):
    """Answers questions about documents of the visitor.

    Args:
        model: reader with its weights.
        data: data module of the run.

    Raises:
        ValueError: pages are ranked by a file of rankings, which has none of a visitor's questions.
    """

    task = "Give documents and ask about them; the answer shows the page that it depends on."

    def __init__(self, model: DocumentReader, data: DocumentDataModule) -> None:
        if data.retriever.kind in WITH_RANKINGS:
            raise ValueError(
                f"data.init_args.retriever.kind is {data.retriever.kind}: found rankings of known questions only; "
                "set --data.init_args.retriever.kind bm25 and --data.init_args.retriever.rankings null"
            )
        self._model, self._data = model, data
        self._answerer = model.answerer(lambda sample: None)
        self._documents = UploadedDocuments(getattr(data, "ingestion", IngestionSettings()))
        self.fields = [
            InputField(
                "documents", "file", "Documents", f"PDFs or pictures of pages, at most {_MAX_FILES}, each of at most "
                f"{MAX_PAGES} pages.", SUFFIXES, max_count=_MAX_FILES,
            ),
            InputField("question", "text", "Question", "Each document is asked; a page can be named: on page 3."),
            OPTIONS,
        ]  # fmt: skip
        self.about = [("retriever", data.retriever.kind), ("context", f"at most {data.context.tokens} tokens")]

    @override
    def examples(self) -> list[Example]:
        if isinstance(self._data, SyntheticManuals):
            return _examples_of_manuals(self._data)
        return _examples_of_files(self._data) if isinstance(self._data, DocumentQuestions) else []

    @override
    def accept(self, field: InputField, file: UploadedFile) -> Iterator[AnswerBlock]:
        document = yield from self._documents.read(file, file.name)
        try:
            empty = [page.number for page in document.pages if not any(chunk.text.strip() for chunk in page.chunks)]
        except ValueError as error:
            raise UserInputError(str(error)) from error
        without = f", {len(empty)} without text" if empty else ""
        number = len(document.pages)
        yield Note(file.name, f"{number} page{'s' * (number > 1)}{without}")

    @override
    def answer(self, question: UserQuestion) -> Iterator[AnswerBlock]:
        asked, options = question.text("question"), read_options(question.texts.get("options", ""))
        files = question.files.get("documents", ())
        if not files:
            raise UserInputError("Documents: no file is given; give one first")
        answers: list[_Answered] = []
        failures: list[tuple[str, str]] = []
        for number, file in enumerate(files, 1):
            yield Note("answer", f"document {number} of {len(files)}: {file.name}")  # until the answer is known
            try:
                answers.append((yield from self._answer_question(file, asked, options)))
            except (BadSampleError, UserInputError, ValueError) as error:
                failures.append((file.name, str(error)))
        if not answers:
            raise UserInputError("; ".join(message for _, message in failures))
        # A confident abstention for one document does not contradict an answer that is in another document.
        best = max(answers, key=lambda answered: (not answered.abstains, answered.record.whole.confidence))
        yield from self._page_blocks(best, options)
        if len(files) > 1:
            yield _table(answers, failures)

    def _answer_question(self, file: UploadedFile, asked: str, options: list[str]) -> Generator[Note, None, _Answered]:
        """Return the answer to a question about a document. `predict` computes the same answer."""
        document = yield from self._documents.read(file, "answer")
        record = {"id": "question", "question": asked, "document": "document", "options": options}
        parsed = parse_question(record, "the question")
        questions = FileQuestionSet([parsed], {"document": document}, {"document": "document"}, title="the question")
        batch = self._data.prediction_set(questions)[MicroBatchRequest(0, np.arange(1))]
        (answer,) = self._answerer.records(self._model.transfer_batch_to_device(batch, self._model.device, 0))
        return _Answered(document, answer, answer_text(parsed, answer.whole))

    def _page_blocks(self, best: _Answered, options: list[str]) -> Iterator[AnswerBlock]:
        record, name = best.record, best.document.name
        title = "Not in these documents" if best.abstains else f"From {name}"
        yield Text("answer", title, best.text or "(nothing)", is_answer=True)
        confidence = [Bar("of the answer", round(record.whole.confidence, 4))]
        if options:
            chances = zip(options, shares(record.whole.options), strict=True)
            confidence = sorted((Bar(text, round(share, 4)) for text, share in chances), key=lambda bar: -bar.share)
        yield Bars("confidence", "Confidence", confidence)
        evidence = None if best.abstains else strongest_evidence(record)
        if evidence is not None:
            page = best.document.picture(evidence.page)
            _draw_box(page, evidence.box)
            caption = f"page {evidence.page}, {evidence.kind}"
            note = (
                f"Without the marked {evidence.kind} the answer's tokens have {100 * math.exp(-evidence.cost):.0f} % "
                "of their probability (geometric mean)."
            )
            yield Pictures("evidence", "Evidence", [Picture(page_data_url(page), caption)], note, large=True)
        other_pages = [page for page in record.ranked if evidence is None or page != evidence.page]
        others = []
        for number in other_pages[:_OTHER_PAGES]:
            page = best.document.picture(number)
            page.thumbnail(_SMALL)
            read = "" if number in record.pages else ", not read"
            others.append(Picture(page_data_url(page), f"page {number}{read}"))
        if others:
            yield Pictures("pages", "Other pages found" if evidence else "Pages found", others)


def _table(documents: list[_Answered], failures: list[tuple[str, str]]) -> Table:
    rows: list[list[str | float]] = []
    for answered in documents:
        evidence = strongest_evidence(answered.record)
        page = "" if evidence is None or answered.abstains else f"{evidence.page}"
        rows.append([answered.document.name, answered.text, round(answered.record.whole.confidence, 4), page])
    rows += [[name, f"not answered: {message}", "", ""] for name, message in failures]
    return Table("documents", "Each document", ["document", "answer", "confidence", "page"], rows)


def _draw_box(page: "Image", box: tuple[float, float, float, float]) -> None:
    """Mark a part of a page, with a margin so that the line covers no text."""
    from PIL.ImageDraw import Draw

    line = max(2, max(page.size) // 250)
    left, top, right, bottom = box
    corners = (
        max(0, left * page.width - 2 * line), max(0, top * page.height - 2 * line),
        min(page.width - 1, right * page.width + 2 * line), min(page.height - 1, bottom * page.height + 2 * line),
    )  # fmt: skip
    Draw(page).rectangle(corners, outline=_BOX, width=line)


def _example(question: DocumentQuestion, file: UploadedFile) -> Example:
    values = {"documents": [file], "question": question.question, "options": "\n".join(question.options)}
    return Example(question.question, values)


def _examples_of_manuals(data: SyntheticManuals) -> list[Example]:
    questions = data.question_set("test")
    samples = range(0, len(questions), max(1, data.questions_per_manual))[:_EXAMPLES]
    return [
        _example(questions.questions(0, sample)[0], UploadedFile(document.name, document.pdf()))
        for sample in samples
        for document in [questions.document(0, sample)]
    ]


def _examples_of_files(data: DocumentQuestions) -> list[Example]:
    """Return questions of the validation about PDFs that are still in their folder; none without a validation."""
    source = data.sources["validation"] or data.sources["train"]
    assert source is not None, "a run has training data"
    try:
        questions = data.loaded_split("validation").questions
    except ValueError:  # there is none, or its documents are not on this machine
        return []
    examples = []
    # Reversed, so that of each document the first question remains.
    for document, question in {question.document: question for question in reversed(questions)}.items():
        path = Path(source.documents, document)
        if path.suffix.lower() == ".pdf" and path.is_file() and path.stat().st_size <= MEGABYTE:
            examples.append(_example(question, UploadedFile(document, path.read_bytes())))
        if len(examples) == _EXAMPLES:
            break
    return examples
