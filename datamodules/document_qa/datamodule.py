"""The base of the document-QA family's DataModules: questions about documents, answered or searched for."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from datamodules.document_qa.ablation import Ablation
from datamodules.document_qa.answered_questions import AnsweredQuestions, Split
from datamodules.document_qa.asked_documents import AskedDocuments
from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.context import ContextBuilder, ContextSettings
from datamodules.document_qa.document_chats import DocumentChats
from datamodules.document_qa.option_examples import OptionSets
from datamodules.document_qa.prompt import AnswerWith, Language, Prompter
from datamodules.document_qa.question import QuestionSet
from datamodules.document_qa.ranked_set import RankedSet
from datamodules.document_qa.readings import Readings
from datamodules.document_qa.retrieval.retrievers import make_retriever
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.retrieval_examples import RetrievalExamples
from datamodules.document_qa.retrieval_reader import RetrievalReader
from engine.loading import MeasuredLoader
from engine.randomness import global_seed

_TEXTS = 500
"""Samples whose texts the built-in tokenizer is made from."""


class DocumentDataModule(AnsweredQuestions):
    """Questions about documents. A subclass says where they come from.

    Args:
        task: `answer` questions, for a DocumentReader; or `retrieve` the pages that answer them, for a PageRetriever.
        context: what of a document is put before a question.
        retriever: which pages come first.
        augmentation: how the samples of a training are altered.
        answer_with: what the assistant says of the option that it chooses: its `text` or its `letter`.
        list_options: whether a choice question is asked with its options; without them it is asked as an open one, and they are told apart by how likely each is as its answer.
        option_orders: in evaluations each choice question is asked in so many cyclic orders of its options, and what is found is their mean; 1: as it is.
        questions_per_chat: in training a chat asks at most so many questions about its document, one after the other. With `loss: contrastive_options` each question has chats of its own, one for each of its options, all with the whole context: a sample costs so many times as much.
        ablate: show documents without something, in training and evaluation: `none`, `figure`, `table`, `text`, `shuffled_figure` (another document's figures) or `question_only`.
        prompt_language: of the words that prompts add to documents and questions: `en` or `zh`.
        system: a system message before each context; null for none.
        hard_negatives: to `retrieve`: wrong pages of the same document that come with each question, beside the other questions' pages.
        rank: to `retrieve`: the questions whose pages `predict` ranks, of `train`, `validation`, `test` and `predict`.
        evaluation_batch_size: questions (or pages) that one device reads at once in evaluations, each with all its context; figures do not depend on it.
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
        list_options: bool = True,
        option_orders: int = 1,
        questions_per_chat: int = 1,
        ablate: Ablation = "none",
        prompt_language: Language = "en",
        system: str | None = None,
        hard_negatives: int = 3,
        rank: list[Split] | None = None,
        evaluation_batch_size: int = 16,
        **images: Any,
    ) -> None:
        super().__init__(evaluation_batch_size=evaluation_batch_size, **images)
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
        if not list_options and (answer_with == "letter" or option_orders > 1):
            raise ValueError(
                "data.init_args.list_options is false, so options have neither letters nor an order: leave out "
                "data.init_args.answer_with letter and data.init_args.option_orders above 1"
            )
        if task == "retrieve" and ablate == "question_only":
            raise ValueError("data.init_args.ablate question_only leaves no page, and data.init_args.task is retrieve")
        if task == "retrieve" and self.augmentation.enabled:
            raise ValueError("data.augmentation is of questions to answer, but data.init_args.task is retrieve")
        if task == "retrieve" and not list_options:
            raise ValueError(
                "data.init_args.list_options is of questions to answer; with data.init_args.task retrieve a question "
                "is always read with its options, which are words that its page may have"
            )
        if task == "retrieve" and questions_per_chat > 1 and "train" in (rank or ()):
            raise ValueError(
                f"data.init_args.rank names train, and data.init_args.questions_per_chat is {questions_per_chat}: only "
                "the first question of each chat would be ranked; set data.init_args.questions_per_chat to 1"
            )
        if task == "answer" and rank is not None:
            raise ValueError("data.init_args.rank is of data.init_args.task retrieve, but the task is answer")
        self.task, self.answer_with, self.option_orders = task, answer_with, option_orders
        self.list_options = list_options
        self.questions_per_chat, self.ablate = questions_per_chat, ablate
        self.prompt_language, self.system, self.hard_negatives = prompt_language, system, hard_negatives
        self.rank: list[Split] = rank or ["predict"]

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
        if stage == "fit" and not self.validates:
            self.trainer.limit_val_batches = 0
        elif stage in ("fit", "validate"):
            self.validation_set = self._evaluation("validation")
        if stage == "test":
            self.test_set = self._evaluation("test")
        if stage == "predict":
            self.predict_set = self._evaluation("predict")

    @property
    def validates(self) -> bool:
        """Whether there is something to validate a training with."""
        return True

    @cached_property
    def prompter(self) -> Prompter:
        """Makes chats of contexts and questions."""
        return Prompter(
            self.tokenizer.control, self.answer_with, self.prompt_language, self.system, self.list_options
        )

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
        leave_out = self.leaves_out_bad
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
        leave_out, predicts = self.leaves_out_bad, split == "predict"
        if self.task == "retrieve":
            reader = RetrievalReader(self.context_builder, self.chat_encoder, self.ablate)
            parts = [self.question_set(one) for one in (self.rank if predicts else [split])]
            return RankedSet(parts, reader, leave_out)
        evidence = self._explained(split)
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
        asked = loader.dataset.data
        if isinstance(asked, AskedDocuments):
            asked.look_through()
        return loader

    def _explained(self, split: Split) -> int | None:
        """Questions whose evidence is looked for; None: all."""
        module = self.trainer.lightning_module
        if split == "predict":
            return None if getattr(module, "predict_evidence", True) else 0
        return getattr(module, "evidence_questions", 0) if split == "test" else 0

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        return {**super()._what_is_ordered(), "questions_per_chat": self.questions_per_chat}
