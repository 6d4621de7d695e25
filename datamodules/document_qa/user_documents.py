"""Provides questions about the user's own documents: a DataModule."""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from datamodules.document_qa.batch import AnswerRecord
from datamodules.document_qa.datamodule import DocumentDataModule, DocumentOptions
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.questions.dataset import FileQuestionSet
from datamodules.document_qa.questions.question_source import LoadedQuestions, QuestionSource, shared_documents_message
from datamodules.document_qa.questions.splits import (
    SplitSettings,
    find_shared_documents,
    group_documents,
    split_documents,
)
from datamodules.document_qa.types.question import QuestionSet, SplitName
from datamodules.multimodal.images.tiling import ResizeMode
from engine.base_options import Unpack
from engine.determinism.stateless_rng import global_seed
from engine.export.artifacts import DatasetCard

log = logging.getLogger("lockstep")

_TEXTS = 2000
"""Number of questions, and of pages, that train the built-in tokenizer; upper limits."""

_SHARES: tuple[Literal["validation", "test"], ...] = ("validation", "test")
"""Splits that may be taken from the training file."""


class DocumentQuestions(DocumentDataModule):
    """Questions in files, about PDFs, page images or Markdown files, which `prepare` ingests.

    Validation and test have their own files, or take a share of the training file's documents with all their
    questions. The same document, under whatever name, is never in two splits.

    Args:
        train: training questions and their documents.
        validation: validation questions; null takes a share of the training file's documents.
        test: test questions; null takes a share of the training file's documents.
        split: how the training file's documents are split.
        shared_documents: what to do when two files contain the same document: `stop`, or `allow` it, to measure how
            well a model knows its training documents.
        ingestion: how documents become pages and chunks.
        predict_questions: questions that `predict` answers, in order; answers may be unknown.
        predict_documents: folder of their documents.
        resize_mode: how an image becomes a square view: `stretch`, `pad` to a square, or `crop` the central square.
        root: folder where `prepare` writes ingested documents.
        **batches: see DocumentDataModule, AnswerEvaluation, MultimodalDataModule and LockstepDataModule.
    """

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
        resize_mode: ResizeMode = "pad",
        root: str = "data/document_qa",
        **batches: Unpack[DocumentOptions],
    ) -> None:
        super().__init__(**batches)
        self.split, self.ingestion = split or SplitSettings(), ingestion or IngestionSettings()
        self.split.check("data.init_args.split.")
        self.ingestion.check("data.init_args.ingestion.")
        if (predict_questions is None) != (predict_documents is None):
            raise ValueError(
                "data.init_args.predict_questions (a file) and data.init_args.predict_documents (the folder of its "
                "documents) must be set together; found only one of them"
            )
        self.sources: dict[SplitName, QuestionSource | None] = {"train": train, "validation": validation, "test": test}
        self.sources["predict"] = None
        if predict_questions is not None and predict_documents is not None:
            self.sources["predict"] = QuestionSource(predict_questions, predict_documents)
        self.shared_documents, self.resize_mode, self.root = shared_documents, resize_mode, Path(root)
        self._read: dict[SplitName, LoadedQuestions] = {}

    @override
    def dataset_card(self) -> DatasetCard:
        train = self.sources["train"]
        assert train is not None
        name = f"{Path(train.questions).name}, about the documents in {Path(train.documents).name}"
        terms = (
            "your own documents and questions: state here under which terms they may be used; are they confidential?"
        )
        return DatasetCard(name, "Questions about documents.", terms)

    # -- files -------------------------------------------------------------------------------------------------------

    @override
    def prepare_data(self) -> None:
        for split in self._required_splits:
            source = self.sources[split]
            if source is not None:
                source.ingest(self.root, self.ingestion)

    @override
    def prepare(self) -> None:
        """Ingest all documents into `root` and log the size of the splits."""
        super().prepare()
        self._check_shared_documents()
        for split, source in self.sources.items():
            if split == "train" or source is not None or split in _SHARES and getattr(self.split, split):
                loaded = self.loaded_split(split)
                log.info("%s: %s questions about %s documents", split, len(loaded.questions), len(loaded.contents))

    @override
    def setup(self, stage: str) -> None:
        if stage != "predict":
            self._check_shared_documents()
        if stage == "fit" and not self.validates:
            log.warning(
                "data.init_args.split.validation is 0: there is no validation, so no best checkpoint can be selected"
            )
        super().setup(stage)

    @property
    @override
    def validates(self) -> bool:
        return self.sources["validation"] is not None or self.split.validation > 0

    @property
    def _required_splits(self) -> list[SplitName]:
        """Splits whose files the current command reads."""
        command = None if self.trainer is None else self.trainer.state.fn
        # Documents that files share are found only if all files are read.
        if command is None or command != "predict" and self.shared_documents == "stop":
            return [split for split in self.sources if command is None or split != "predict"]
        needed: list[SplitName] = ["test" if command == "test" else "predict" if command == "predict" else "validation"]
        if command == "predict" and self.task == "retrieve":
            needed = self.rank
        if command != "predict" or self.tokenizer_source is None or None in map(self.sources.get, needed):
            needed = ["train", *needed]
        return [split for split in self.sources if split in needed]

    def loaded_split(self, split: SplitName) -> LoadedQuestions:
        """Return the questions of a split with their ingested documents; cached.

        Raises:
            ValueError: the split does not exist, or a file is invalid.
        """
        if split not in self._read:
            self._read[split] = self._load_split(split)
        return self._read[split]

    def _load_split(self, split: SplitName) -> LoadedQuestions:
        source = self.sources[split]
        if split == "train" or source is None and split != "predict":
            return self._train_file_share(split)
        if source is None:
            raise ValueError(
                "predict needs data.init_args.predict_questions, a file of questions, and "
                "data.init_args.predict_documents, the folder of their documents"
            )
        # Predictions have one line per question, so questions about broken documents are kept.
        return source.read(self.root, self.ingestion, keep_all=split == "predict" and self.task == "answer")

    def _train_file_share(self, split: SplitName) -> LoadedQuestions:
        """Return a split's share of the training file."""
        if split != "train" and not getattr(self.split, split):
            raise ValueError(
                f"found neither data.init_args.{split}, a file of questions with its documents, nor a share of the "
                f"training documents: data.init_args.split.{split} is 0"
            )
        return self._training_file.about([name for name, its in self._splits.items() if its == split])

    @cached_property
    def _training_file(self) -> LoadedQuestions:
        source = self.sources["train"]
        assert source is not None
        return source.read(self.root, self.ingestion)

    @cached_property
    def _splits(self) -> Mapping[str, str]:
        shares = {name: getattr(self.split, name) if self.sources[name] is None else 0.0 for name in _SHARES}
        return split_documents(self._training_file.contents, SplitSettings(**shares, seed=self.split.seed))

    def _check_shared_documents(self) -> None:
        """Check that a file shares no document with the training file or another file; splits of one file never do."""
        if self.shared_documents == "allow":
            return
        configured = [split for split in _SHARES if self.sources[split] is not None]
        for number, split in enumerate(configured):
            for other, earlier in [
                ("train", self._training_file),
                *((name, self.loaded_split(name)) for name in configured[:number]),
            ]:
                current = self.loaded_split(split)
                shared = find_shared_documents(current.contents, earlier.contents)
                if shared:
                    raise ValueError(shared_documents_message(current, split, earlier, other, shared))

    # -- questions and texts -----------------------------------------------------------------------------------------

    @override
    def question_set(self, split: SplitName) -> QuestionSet:
        loaded = self.loaded_split(split)
        per_chat = self.questions_per_chat if split == "train" else 1
        title = f"{loaded.path} ({split})"
        return FileQuestionSet(
            questions=loaded.questions,
            documents=loaded.documents,
            groups=group_documents(loaded.contents),
            per_chat=per_chat,
            seed=global_seed(),
            title=title,
            broken=loaded.broken,
        )

    @override
    def texts(self) -> Iterator[str]:
        loaded = self.loaded_split("train")
        for question in loaded.questions[:_TEXTS]:
            yield "\n".join([question.question, *question.options, question.answer or ""])
        pages = 0
        for name in sorted(loaded.documents):
            for page in loaded.documents[name].pages:
                yield "\n".join(chunk.text for chunk in page.chunks)
                pages += 1
                if pages == _TEXTS:
                    return

    @override
    def describe(self, row: int) -> dict[str, Any]:
        return {**super().describe(row), "id": self.loaded_split("predict").ids[row]}

    @override
    def prediction_fields(self, record: AnswerRecord) -> dict[str, Any]:
        # Ids keep the type that they have in the question file.
        return {**super().prediction_fields(record), "id": self.loaded_split("predict").ids[record.sample]}

    def _order_identity(self) -> dict[str, Any]:
        # A run that is resumed within an epoch must find the same samples in the same order.
        return {**super()._order_identity(), "questions": self.loaded_split("train").identity}
