"""The base of the document-QA family's DataModules: questions about documents, answered or searched for."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datamodules.document_qa.ablation import Ablation
from datamodules.document_qa.asked_documents import AskedDocuments
from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.batch import AnswerRecord, Said
from datamodules.document_qa.context import ContextBuilder, ContextSettings
from datamodules.document_qa.document_chats import DocumentChats
from datamodules.document_qa.grading.baselines import UsualAnswers, asked_in, usual_answers
from datamodules.document_qa.grading.grade import grade
from datamodules.document_qa.grading.summary import summary
from datamodules.document_qa.option_examples import OptionSets
from datamodules.document_qa.prompt import AnswerWith, Language, Prompter
from datamodules.document_qa.question import Question, QuestionSet
from datamodules.document_qa.ranked_set import RankedSet
from datamodules.document_qa.readings import Readings
from datamodules.document_qa.reports.prediction_line import prediction_line
from datamodules.document_qa.reports.run_reports import write_prediction_report, write_test_reports
from datamodules.document_qa.retrieval.retrievers import make_retriever
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.retrieval_examples import RetrievalExamples
from datamodules.document_qa.retrieval_reader import RetrievalReader
from datamodules.multimodal.image_datamodule import ImageDataModule
from engine.loading import MeasuredLoader
from engine.randomness import global_seed

if TYPE_CHECKING:
    from PIL.Image import Image

Split = Literal["train", "validation", "test", "predict"]

_SHOWN_PAGES = 4
"""Of a context, where an answer is shown."""

_DECIDES = ("context", "retriever", "answer_with", "option_orders", "prompt_language", "system")
"""Settings that decide about the answers of a test, beside the checkpoint and the questions."""

_TEXTS = 500
"""Samples whose texts the built-in tokenizer is made from."""


class DocumentDataModule(ImageDataModule):
    """Questions about documents. A subclass says where they come from.

    Args:
        task: `answer` questions, for a DocumentReader; or `retrieve` the pages that answer them, for a PageRetriever.
        context: what of a document is put before a question.
        retriever: which pages come first.
        augmentation: how the samples of a training are altered.
        answer_with: what the assistant says of the option that it chooses: its `text` or its `letter`.
        option_orders: in evaluations each choice question is asked in so many cyclic orders of its options, and what is found is their mean; 1: as it is.
        questions_per_chat: in training a chat asks at most so many questions about its document, one after the other.
        ablate: show documents without something, in training and evaluation: `none`, `figure`, `table`, `text`, `shuffled_figure` (another document's figures) or `question_only`.
        prompt_language: of the words that prompts add to documents and questions: `en` or `zh`.
        system: a system message before each context; null for none.
        hard_negatives: to `retrieve`: wrong pages of the same document that come with each question, beside the other questions' pages.
        rank: to `retrieve`: the questions whose pages `predict` ranks, of `train`, `validation`, `test` and `predict`.
        images: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    train_set: Any
    validation_set: Any
    test_set: Any
    predict_set: Any

    def __init__(
        self,
        task: Literal["answer", "retrieve"] = "answer",
        context: ContextSettings | None = None,
        retriever: RetrieverSettings | None = None,
        augmentation: AugmentationSettings | None = None,
        answer_with: AnswerWith = "text",
        option_orders: int = 1,
        questions_per_chat: int = 1,
        ablate: Ablation = "none",
        prompt_language: Language = "en",
        system: str | None = None,
        hard_negatives: int = 3,
        rank: list[Split] | None = None,
        **images: Any,
    ) -> None:
        super().__init__(**images)
        self.context, self.retriever = context or ContextSettings(), retriever or RetrieverSettings()
        self.augmentation = augmentation or AugmentationSettings()
        self.context.check("data.init_args.context.")
        self.retriever.check("data.init_args.retriever.")
        self.augmentation.check("data.init_args.augmentation.")
        for name, number, least in (
            ("option_orders", option_orders, 1),
            ("questions_per_chat", questions_per_chat, 1),
            ("hard_negatives", hard_negatives, 0),
        ):
            if number < least:
                raise ValueError(f"data.init_args.{name} must be at least {least}, got {number}")
        if task == "retrieve" and ablate == "question_only":
            raise ValueError("data.init_args.ablate question_only leaves no page, and data.init_args.task is retrieve")
        if task == "retrieve" and self.augmentation.enabled:
            raise ValueError("data.augmentation is of questions to answer, but data.init_args.task is retrieve")
        if task == "answer" and rank is not None:
            raise ValueError("data.init_args.rank is of data.init_args.task retrieve, but the task is answer")
        self.task, self.answer_with, self.option_orders = task, answer_with, option_orders
        self.questions_per_chat, self.ablate = questions_per_chat, ablate
        self.prompt_language, self.system, self.hard_negatives = prompt_language, system, hard_negatives
        self.rank: list[Split] = rank or ["predict"]

    # -- what a subclass says ----------------------------------------------------------------------------------------

    @abstractmethod
    def question_set(self, split: Split) -> QuestionSet:
        """The questions of a split; to train on up to `questions_per_chat` a sample, else one."""

    def texts(self) -> Iterator[str]:
        questions = self.question_set("train")
        for index in range(min(_TEXTS, len(questions))):
            document = questions.document(0, index)
            yield "\n".join(chunk.text for page in document.pages for chunk in page.chunks)
            for question in questions.questions(0, index):
                yield "\n".join([question.question, *question.options, question.answer or ""])

    # -- the sets ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self._training()
        if stage in ("fit", "validate"):
            self.validation_set = self._evaluation("validation")
        if stage == "test":
            self.test_set = self._evaluation("test")
        if stage == "predict":
            self.predict_set = self._evaluation("predict")

    @cached_property
    def prompter(self) -> Prompter:
        """Makes chats of contexts and questions."""
        return Prompter(self.tokenizer.control, self.answer_with, self.prompt_language, self.system)

    @cached_property
    def context_builder(self) -> ContextBuilder:
        """Makes contexts. Known from `setup` on, as it needs to know what the model makes of an image."""
        return ContextBuilder(self.context, self.tokenizer, self.prompter, self.image_layout, self.fit)

    def _readings(self, questions: QuestionSet, training: bool = False) -> Readings:
        return Readings(
            questions,
            make_retriever(self.retriever),
            self.context_builder,
            self.prompter,
            self.ablate,
            Augmenter(self.augmentation, global_seed()) if training and self.augmentation.enabled else None,
            evidence_first=training and self.context.evidence_in_training,
        )

    def _training(self) -> Any:
        leave_out = self.max_unusable > 0
        if self.task == "retrieve":
            reader = RetrievalReader(self.context_builder, self.chat_encoder, self.ablate)
            return RetrievalExamples(
                self.question_set("train"), reader, self.hard_negatives, self.max_length, self.too_long, leave_out
            )
        source = DocumentChats(self._readings(self.question_set("train"), training=True))
        if getattr(self.trainer.lightning_module, "loss", None) != "contrastive_options":
            return self.examples(source)
        if self.length_groups > 1:
            raise ValueError(
                f"data.init_args.length_groups is {self.length_groups}, but with model.init_args.loss "
                "contrastive_options the options of a question are computed together: set it to 1"
            )
        return OptionSets(source, self.chat_encoder, self.row_tokens, self.max_length, self.too_long, leave_out)

    def _evaluation(self, split: Split) -> Any:
        leave_out, predicts = self.max_unusable > 0, split == "predict"
        if self.task == "retrieve":
            reader = RetrievalReader(self.context_builder, self.chat_encoder, self.ablate)
            parts = [self.question_set(one) for one in (self.rank if predicts else [split])]
            return RankedSet(parts, reader, leave_out)
        evidence = {"predict": None, "test": self._explained}.get(split, 0)
        return AskedDocuments(
            self._readings(self.question_set(split)),
            self.chat_encoder,
            self.option_orders,
            question_only=not predicts,
            evidence=evidence,
            in_order=predicts,
            leave_out=leave_out,
        )

    def _evaluation_loader(self, data: Any, stage: Literal["val", "test", "predict"]) -> MeasuredLoader:
        loader = super()._evaluation_loader(data, stage)
        if isinstance(loader.dataset, AskedDocuments):
            loader.dataset.look_through()
        return loader

    @property
    def _explained(self) -> int:
        """Questions of a test whose evidence is looked for."""
        return getattr(self.trainer.lightning_module, "evidence_questions", 0)

    # -- of the set that is evaluated --------------------------------------------------------------------------------

    @property
    def evaluated(self) -> Any:
        stage = self.trainer.state.stage
        name = {"test": "test_set", "predict": "predict_set"}.get(str(stage and stage.value), "validation_set")
        return getattr(self, name)

    @property
    def evaluated_questions(self) -> QuestionSet:
        """The questions that are being answered."""
        return self.evaluated.readings.questions

    def question(self, sample: int) -> Question:
        """A question that is being answered."""
        (question,) = self.evaluated_questions.questions(0, sample)
        return question

    def describe(self, row: int) -> dict[str, Any]:
        """What `predict` writes beside an answer."""
        question = self.question(row)
        options = {"options": list(question.options)} if question.options else {}
        return {"id": question.id, "question": question.question, "document": question.document, **options}

    def predicted(self, record: AnswerRecord) -> dict[str, Any]:
        """What `predict` writes of an answer."""
        return {**self.describe(record.sample), **prediction_line(self.question(record.sample), record)}

    def shown(self, record: AnswerRecord) -> tuple[str, list["Image"], str, str, str, str, bool | None]:
        """To be looked at: name, pages, question, right answer, what was said, and without a document; whether right.

        The pages are as they are shown to the model, altered and ablated.
        """
        question, document = self.question(record.sample), self.evaluated.readings.reading(0, record.sample).document
        alone = record.question_only
        right = grade(question, record.whole).right
        return (
            f"{record.sample} {question.source or ''}".strip(),
            [document.picture(page) for page in record.pages[:_SHOWN_PAGES]],
            "\n".join([question.question, *question.options]),
            question.answer or "",
            said_in_words(question, record.whole),
            "" if alone is None else said_in_words(question, alone),
            None if right is None else right == 1.0,
        )

    def summary(self, records: Sequence[AnswerRecord]) -> dict[str, float]:
        """{name: figure} of all records of an evaluation."""
        return summary(self.question, records, self._usual)

    def write_test_report(self, folder: Path, records: Sequence[AnswerRecord]) -> None:
        """Into a run's folder: the answers of a test, and how they compare with other ablations.

        Args:
            records: of all processes.
        """
        settings = {name: str(getattr(self, name)) for name in _DECIDES}
        asked = self.evaluated_questions
        write_test_reports(folder, asked, records, self.ablate, self._checkpoint, settings, self._usual)

    def write_prediction_report(self, folder: Path, predictions: Path) -> None:
        """Into a run's folder: the answers of a file of predictions, with their pages.

        Args:
            predictions: what `predict` has written, in whole.
        """
        write_prediction_report(folder, self.evaluated_questions, predictions, self._checkpoint)

    @property
    def _checkpoint(self) -> str | None:
        """That is evaluated; None: untrained weights."""
        return None if self.trainer.ckpt_path is None else str(self.trainer.ckpt_path)

    @cached_property
    def _usual(self) -> UsualAnswers:
        """What is answered most often in training."""
        return usual_answers(asked_in(self.question_set("train")))

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        return {**super()._what_is_ordered(), "questions_per_chat": self.questions_per_chat}


def said_in_words(question: Question, said: Said) -> str:
    """The option that was chosen, or what was written."""
    return question.options[said.chosen] if question.options else said.text
