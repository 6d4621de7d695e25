"""Provides the base of the document-QA DataModules, for answering questions and for retrieving pages."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

from typing_extensions import override

from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.evaluation import AnswerEvaluation, ReaderSettings
from datamodules.document_qa.prompt.context import ContextBuilder, ContextSettings
from datamodules.document_qa.prompt.prompt import AnswerWith, Language, PromptBuilder
from datamodules.document_qa.retrieval.encoder_inputs import EncoderInputBuilder
from datamodules.document_qa.retrieval.ranking_dataset import PageRankingDataset
from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.retrieval.train_pairs import RetrievalPairDataset
from datamodules.document_qa.samples.evaluation_dataset import DocumentEvaluationDataset
from datamodules.document_qa.samples.option_dataset import OptionDataset
from datamodules.document_qa.samples.sample_builder import SampleBuilder
from datamodules.document_qa.samples.train_chats import DocumentChats
from datamodules.document_qa.task_options import Task, check_task_options
from datamodules.document_qa.types.question import QuestionSet, SplitName
from datamodules.document_qa.views.ablation import Ablation
from datamodules.multimodal.chat_dataset import ChatExamples
from datamodules.multimodal.image_datamodule import TileOptions
from engine.base_options import Unpack
from engine.data.dataloader import SkipBadSamples, TimedDataLoader
from engine.determinism.stateless_rng import global_seed
from engine.number_check import check_number, check_numbers

_TEXTS = 500
"""Number of samples whose texts train the built-in tokenizer."""


class DocumentOptions(TileOptions, total=False):
    """Options of DocumentDataModule, which describes them, and of its bases."""

    task: Task
    context: ContextSettings | None
    retriever: RetrieverSettings | None
    augmentation: AugmentationSettings | None
    answer_with: AnswerWith
    list_options: bool
    option_orders: int
    questions_per_chat: int
    ablate: Ablation
    prompt_language: Language
    system: str | None
    hard_negatives: int
    rank: list[SplitName] | None


class DocumentDataModule(AnswerEvaluation):
    """Base of DataModules of questions about documents. A subclass provides the questions.

    Args:
        task: `answer` questions, for a DocumentReader; or `retrieve` the pages that answer them, for a PageRetriever.
        context: which part of a document is put before a question.
        retriever: how pages are ranked.
        augmentation: augmentation of training samples.
        answer_with: what the assistant answers to a choice question: the option's `text` or its `letter`.
        list_options: list the options in the prompt. Without them a choice question is asked as an open question, and
            the options are ranked by their likelihood as an answer.
        option_orders: number of cyclic orders of the options in which an evaluation asks each choice question; the
            results are averaged. 1 keeps the original order only.
        questions_per_chat: largest number of questions in a training chat, all about the same document. With
            `loss: contrastive_options` each question has its own chats, one per option, each with the whole context,
            so the cost of a sample grows by this factor.
        ablate: content to remove from documents, in training and evaluation: `none`, `figure`, `table`, `text`,
            `shuffled_figure` (figures of another document instead) or `question_only`.
        prompt_language: language of the words that prompts add to documents and questions: `en` or `zh`.
        system: a system message before each context; null for none.
        hard_negatives: for `retrieve`: negative pages of the same document per question, in addition to the in-batch
            negatives.
        rank: for `retrieve`: the splits whose questions `predict` ranks pages for: `train`, `validation`, `test`,
            `predict`.
        evaluation_batch_size: questions (or pages) per evaluation batch on one device, each with its whole context;
            metrics do not depend on it.
        images: see ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """

    extra = "documents"

    # The task chooses the classes; the declarations of MultimodalDataModule are for chats.
    train_set: Any
    validation_set: Any
    test_set: Any
    predict_set: Any

    def __init__(  # type: ignore[misc]  # TileOptions has evaluation_batch_size, too; its default differs here.
        self,
        task: Task = "answer",
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
        rank: list[SplitName] | None = None,
        evaluation_batch_size: int = 16,
        **images: Unpack[TileOptions],
    ) -> None:
        super().__init__(evaluation_batch_size=evaluation_batch_size, **images)
        self.context, self.retriever = context or ContextSettings(), retriever or RetrieverSettings()
        self.augmentation = augmentation or AugmentationSettings()
        self.context.check("data.init_args.context.")
        self.retriever.check("data.init_args.retriever.")
        self.augmentation.check("data.init_args.augmentation.")
        counts = {"option_orders": option_orders, "questions_per_chat": questions_per_chat}
        check_numbers("data.init_args.", counts, at_least=1)
        check_number("data.init_args.hard_negatives", hard_negatives, at_least=0)
        check_task_options(
            task, answer_with=answer_with, list_options=list_options, option_orders=option_orders,
            questions_per_chat=questions_per_chat, ablate=ablate, augments=self.augmentation.enabled, rank=rank,
        )  # fmt: skip
        self.task, self.answer_with, self.list_options = task, answer_with, list_options
        self.option_orders, self.questions_per_chat, self.ablate = option_orders, questions_per_chat, ablate
        self.prompt_language, self.system, self.hard_negatives = prompt_language, system, hard_negatives
        self.rank: list[SplitName] = rank or ["predict"]

    @override
    def texts(self) -> Iterator[str]:
        questions = self.question_set("train")
        for index in range(min(_TEXTS, len(questions))):
            document = questions.document(0, index)
            yield "\n".join(chunk.text for page in document.pages for chunk in page.chunks)
            for question in questions.questions(0, index):
                yield "\n".join([question.question, *question.options, question.answer or ""])

    # -- data sets ---------------------------------------------------------------------------------------------------

    @override
    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self._training()
        if stage == "fit" and not self.validates:
            assert self.trainer is not None  # which calls setup
            self.trainer.limit_val_batches = 0
        elif stage in ("fit", "validate"):
            self.validation_set = self._evaluation("validation")
        if stage == "test":
            self.test_set = self._evaluation("test")
        if stage == "predict":
            self.predict_set = self._evaluation("predict")

    @property
    def validates(self) -> bool:
        """Whether there are validation questions."""
        return True

    @cached_property
    def prompter(self) -> PromptBuilder:
        """Makes chats of contexts and questions; cached."""
        return PromptBuilder(
            self.tokenizer.control, self.answer_with, self.prompt_language, self.system, self.list_options
        )

    @cached_property
    def context_builder(self) -> ContextBuilder:
        """Builds contexts; available from `setup` on, as it needs the model's image layout."""
        return ContextBuilder(self.context, self.tokenizer, self.prompter, self.image_layout, self.resize_mode)

    def _sample_builder(self, questions: QuestionSet, training: bool = False) -> SampleBuilder:
        augmenter = Augmenter(self.augmentation, global_seed()) if training and self.augmentation.enabled else None
        return SampleBuilder(
            questions, build_retriever(self.retriever), self.context_builder, self.prompter, self.ablate, augmenter,
            evidence_first=training and self.context.evidence_in_training,
        )  # fmt: skip

    def _training(self) -> ChatExamples | OptionDataset | RetrievalPairDataset:
        skip_bad = self.skips_bad_samples
        if self.task == "retrieve":
            reader = EncoderInputBuilder(self.context_builder, self.chat_encoder, self.ablate)
            return RetrievalPairDataset(
                self.question_set("train"), reader, self.hard_negatives, self.max_length, self.too_long, skip_bad
            )
        source = DocumentChats(self._sample_builder(self.question_set("train"), training=True))
        module = self._reader_settings
        if module is None or module.loss != "contrastive_options":
            return self.examples(source)
        if self.length_groups > 1:
            raise ValueError(
                f"data.init_args.length_groups is {self.length_groups}, but with model.init_args.loss "
                "contrastive_options the options of a question are computed together: set it to 1"
            )
        return OptionDataset(source, self.chat_encoder, self.packed_length, self.max_length, self.too_long, skip_bad)

    def _evaluation(self, split: SplitName) -> DocumentEvaluationDataset | PageRankingDataset:
        skip_bad, predicts = self.skips_bad_samples, split == "predict"
        if self.task == "retrieve":
            reader = EncoderInputBuilder(self.context_builder, self.chat_encoder, self.ablate)
            parts = [self.question_set(name) for name in (self.rank if predicts else [split])]
            return PageRankingDataset(parts, reader, skip_bad)
        evidence = self._num_evidence_samples(split)
        if predicts:
            return self.prediction_set(self.question_set(split), evidence, skip_bad)
        builder = self._sample_builder(self.question_set(split))
        return DocumentEvaluationDataset(
            builder, self.chat_encoder, self.option_orders, evidence=evidence, skip_bad=skip_bad
        )

    def prediction_set(
        self, questions: QuestionSet, evidence: int | None = None, skip_bad: bool = False
    ) -> DocumentEvaluationDataset:
        """Return questions as `predict` asks them, in their order. Takes the arguments of DocumentEvaluationDataset."""
        return DocumentEvaluationDataset(
            self._sample_builder(questions), self.chat_encoder, self.option_orders, question_only=False,
            evidence=evidence, in_order=True, skip_bad=skip_bad,
        )  # fmt: skip

    def _evaluation_loader(self, data: Any, stage: Literal["val", "test", "predict"]) -> TimedDataLoader:
        loader = super()._evaluation_loader(data, stage)
        reader = loader.dataset
        assert isinstance(reader, SkipBadSamples)
        if isinstance(reader.data, DocumentEvaluationDataset):
            reader.data.measure_samples()
        return loader

    @property
    def _reader_settings(self) -> ReaderSettings | None:
        """The trainer's module, from `setup` on; None if it answers no questions, as a PageRetriever."""
        assert self.trainer is not None  # which calls setup
        module = self.trainer.lightning_module
        return module if isinstance(module, ReaderSettings) else None

    def _num_evidence_samples(self, split: SplitName) -> int | None:
        """Return the number of questions to compute evidence for; None for all."""
        module = self._reader_settings
        if split == "predict":
            return None if module is None or module.predict_evidence else 0
        return module.evidence_questions if module is not None and split == "test" else 0

    @override
    def answer_settings(self) -> dict[str, str]:
        settings = {
            "context": self.context, "retriever": self.retriever, "answer_with": self.answer_with,
            "list_options": self.list_options, "option_orders": self.option_orders,
            "prompt_language": self.prompt_language, "system": self.system, "max_tiles": self.max_tiles,
            "fit": self.resize_mode,  # as in the records of earlier versions, which tests are compared with
        }  # fmt: skip
        return {name: str(value) for name, value in settings.items()}

    def _order_identity(self) -> dict[str, Any]:
        # A run that is resumed within an epoch must find the same samples in the same order.
        return {**super()._order_identity(), "questions_per_chat": self.questions_per_chat}
