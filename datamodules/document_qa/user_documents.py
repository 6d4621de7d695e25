"""The user's own documents and questions about them."""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.datamodule import DocumentDataModule, Split
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.question import QuestionSet
from datamodules.document_qa.questions.question_source import QuestionSource, ReadQuestions
from datamodules.document_qa.questions.splits import SplitSettings, groups_of, shared_between, split_documents
from datamodules.document_qa.questions.written_questions import WrittenQuestions
from datamodules.multimodal.images import Fit
from engine.exported import DataDescription
from engine.prepared_files import PreparedFiles
from engine.randomness import global_seed

log = logging.getLogger("lockstep")

_TEXTS = 2000
"""Questions, and pages, that the built-in tokenizer is made from, of each at most."""

_SHARES: tuple[Literal["validation", "test"], ...] = ("validation", "test")
"""Splits that may be dealt out of the training file."""


class DocumentQuestions(DocumentDataModule):
    """Questions in files, about PDFs, page images or Markdown files, which `prepare` ingests.

    Validation and test have files of their own, or shares of the training file's documents, with all their questions:
    the same document, under whatever names, is never in two of them.

    Args:
        train: file of questions to train on, and its documents.
        validation: to validate with; null for a share of the training file's documents.
        test: to test with; null for a share of the training file's documents.
        split: how the training file's documents are dealt out.
        shared_documents: what becomes of files that share a document's content: `stop`, or `allow` it, for scores that say how well documents are known that were trained on.
        ingestion: how documents become pages and chunks.
        predict_questions: file of questions that `predict` answers, in order; answers need not be known.
        predict_documents: folder of their documents.
        fit: how an image becomes a square view: `stretch`, `pad` (a square around it) or `crop` (the square in its middle).
        root: folder for what `prepare` writes.
        batches: see DocumentDataModule, ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    def __init__(
        self,
        train: QuestionSource,
        validation: QuestionSource | None = None,
        test: QuestionSource | None = None,
        split: SplitSettings | None = None,
        shared_documents: Literal["stop", "allow"] = "stop",
        ingestion: IngestionSettings | None = None,
        predict_questions: str | None = None,
        predict_documents: str | None = None,
        fit: Fit = "pad",
        root: str = "data/document_qa",
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.split, self.ingestion = split or SplitSettings(), ingestion or IngestionSettings()
        self.split.check("data.init_args.split.")
        self.ingestion.check("data.init_args.ingestion.")
        if (predict_questions is None) != (predict_documents is None):
            raise ValueError(
                "data.init_args.predict_questions, a file, and data.init_args.predict_documents, the folder of its "
                "documents, go together: found one of them"
            )
        self.sources: dict[Split, QuestionSource | None] = {"train": train, "validation": validation, "test": test}
        asked = predict_questions is not None and predict_documents is not None
        self.sources["predict"] = QuestionSource(predict_questions, predict_documents) if asked else None
        self.shared_documents, self.fit, self.root = shared_documents, fit, Path(root)
        self._read: dict[Split, ReadQuestions] = {}
        self._some_broken = False

    def description(self) -> DataDescription:
        train = self.sources["train"]
        assert train is not None
        name = f"{Path(train.questions).name}, about the documents in {Path(train.documents).name}"
        terms = "your own documents and questions: state here on what terms, and whether they are confidential."
        return DataDescription(name, "Questions about documents.", terms)

    # -- files -------------------------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        for part in self._parts_needed:
            source = self.sources[part]
            if source is not None and source.ingest(self.root, self.ingestion).broken:
                self._some_broken = True

    def prepare(self) -> None:
        """Ingests all documents into `root`, and says what the splits hold."""
        super().prepare()
        self._refuse_shared()
        for part, source in self.sources.items():
            if part == "train" or source is not None or part in _SHARES and getattr(self.split, part):
                held = self.part(part)
                log.info("%s: %s questions about %s documents", part, len(held.questions), len(held.contents))

    def prepared_files(self) -> PreparedFiles | None:
        if self._some_broken:
            return None  # they are named every time
        sources = [source for source in self.sources.values() if source is not None]
        read = [Path(named) for source in sources for named in (source.questions, source.documents)]
        return PreparedFiles(tuple(dict.fromkeys(read)), (self.root,))

    def setup(self, stage: str) -> None:
        if stage != "predict":
            self._refuse_shared()
        if stage == "fit" and not self.validates:
            log.warning(
                "data.init_args.split.validation is 0: nothing is validated, so no checkpoint is known to be the best"
            )
        super().setup(stage)

    @property
    def validates(self) -> bool:
        return self.sources["validation"] is not None or self.split.validation > 0

    @property
    def _parts_needed(self) -> list[Split]:
        """Whose files the run's command reads."""
        command = None if self.trainer is None else self.trainer.state.fn
        if command is None or command != "predict" and self.shared_documents == "stop":
            return [part for part in self.sources if command is None or part != "predict"]
        needed: list[Split] = ["test" if command == "test" else "predict" if command == "predict" else "validation"]
        if command == "predict" and self.task == "retrieve":
            needed = self.rank
        if command != "predict" or self.tokenizer_source is None or None in map(self.sources.get, needed):
            needed = ["train", *needed]
        return [part for part in self.sources if part in needed]

    def part(self, part: Split) -> ReadQuestions:
        """The questions of a split with their documents, which have been ingested.

        Raises:
            ValueError: there is no such split, or a file is not as it should be.
        """
        if part not in self._read:
            self._read[part] = self._part(part)
        return self._read[part]

    def _part(self, part: Split) -> ReadQuestions:
        source = self.sources[part]
        if part == "train" or source is None and part != "predict":
            return self._dealt(part)
        if source is None:
            raise ValueError(
                "predict needs data.init_args.predict_questions, a file of questions, and "
                "data.init_args.predict_documents, the folder of their documents"
            )
        # Who asks is told of each question: a prediction has a line for every one.
        return source.read(self.root, self.ingestion, keep_all=part == "predict" and self.task == "answer")

    def _dealt(self, part: Split) -> ReadQuestions:
        """A split's share of the training file."""
        if part != "train" and not getattr(self.split, part):
            raise ValueError(
                f"found neither data.init_args.{part}, a file of questions with its documents, nor a share of the "
                f"training documents: data.init_args.split.{part} is 0"
            )
        return self._training_file.about([name for name, its in self._splits.items() if its == part])

    @cached_property
    def _training_file(self) -> ReadQuestions:
        source = self.sources["train"]
        assert source is not None
        return source.read(self.root, self.ingestion)

    @cached_property
    def _splits(self) -> Mapping[str, str]:
        shares = {name: getattr(self.split, name) if self.sources[name] is None else 0.0 for name in _SHARES}
        return split_documents(self._training_file.contents, SplitSettings(**shares, seed=self.split.seed))

    def _refuse_shared(self) -> None:
        """Files of their own with the training file, and with each other. What is dealt out of one shares nothing."""
        if self.shared_documents == "allow":
            return
        own = [part for part in _SHARES if self.sources[part] is not None]
        for place, part in enumerate(own):
            for other, known in [("train", self._training_file), *((one, self.part(one)) for one in own[:place])]:
                held = self.part(part)
                shared = shared_between(held.contents, known.contents)
                if shared:
                    raise ValueError(_leak(held, part, known, other, shared))

    # -- what the family makes of it ---------------------------------------------------------------------------------

    def question_set(self, split: Split) -> QuestionSet:
        held = self.part(split)
        per_chat = self.questions_per_chat if split == "train" else 1
        title = f"{held.path} ({split})"
        return WrittenQuestions(
            held.questions, held.documents, groups_of(held.contents), per_chat, global_seed(), title, held.broken
        )

    def texts(self) -> Iterator[str]:
        held = self.part("train")
        for question in held.questions[:_TEXTS]:
            yield "\n".join([question.question, *question.options, question.answer or ""])
        pages = 0
        for name in sorted(held.documents):
            for page in held.documents[name].pages:
                yield "\n".join(chunk.text for chunk in page.chunks)
                pages += 1
                if pages == _TEXTS:
                    return

    def describe(self, row: int) -> dict[str, Any]:
        return {**super().describe(row), "id": self.part("predict").ids[row]}

    def predicted(self, record: AnswerRecord) -> dict[str, Any]:
        # Numbers stay numbers: whoever has asked knows the questions by what the file says.
        return {**super().predicted(record), "id": self.part("predict").ids[record.sample]}

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        return {**super()._what_is_ordered(), "questions": self.part("train").identity}


def _leak(held: ReadQuestions, part: str, known: ReadQuestions, other: str, shared: list[tuple[str, str]]) -> str:
    """What is wrong with two files that share documents."""
    document, same = shared[0]
    where, there = (
        next(question.where for question in file.questions if question.document == name)
        for file, name in ((held, document), (known, same))
    )
    more = f", and {len(shared) - 1} more" if len(shared) > 1 else ""
    return (
        f"{where}: its document {document!r} is in data.init_args.{part} and, as {same!r} ({there}), in "
        f"data.init_args.{other}{more}: documents that are known already say little of others. Take its questions out "
        "of one of the files, or allow it: data.init_args.shared_documents allow"
    )
