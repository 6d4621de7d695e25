"""Provides embedded data: synthetic manuals, generated on the fly, with questions that only the document answers."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from datamodules.document_qa.datamodule import DocumentDataModule, DocumentOptions
from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.manual import GENERATOR_VERSION
from datamodules.document_qa.manuals.manual_writer import write_manuals
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.types.question import SplitName
from datamodules.multimodal.recorded_settings import recorded_fields, recorded_text
from datamodules.multimodal.synthetic_split import Split
from engine.base_options import Unpack
from engine.export.artifacts import GENERATED, DatasetCard
from engine.number_check import check_number, check_numbers

log = logging.getLogger("lockstep")

_TEXTS = 1500
"""Number of samples whose texts train the built-in tokenizer."""

_TEXTS_SEED = 0x7E875
"""A seed of its own, so that no text comes from a test manual."""

_SPLITS: dict[SplitName, Split] = {
    "train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST, "predict": Split.TEST
}  # fmt: skip


class SyntheticManuals(DocumentDataModule):
    """Manuals of devices: prose, tables and drawings of numbered parts; other assemblies' chapters are distractors.

    A model that sees only a question and its options performs at chance. The splits have different manuals.

    Args:
        manuals: properties of the manuals.
        questions: properties of the questions.
        seed: seed of the samples.
        num_samples: chats per epoch, each about its own manual.
        fresh_samples: generate new samples in every epoch; otherwise every epoch repeats the same samples.
        validation_size: number of validation questions.
        test_size: number of questions for test and predict.
        one_page_chats: in training, the questions of a chat are answered by the same page, which keeps contexts short.
        caption_epochs: initial epochs in which a chat about a drawing is a caption of the whole drawing: a vision tower
            learns from captions much faster than from single questions.
        questions_per_manual: number of validation and test questions about the same manual.
        root: folder where `prepare` writes test manuals as PDFs, with their questions.
        written_manuals: number of manuals that `prepare` writes.
        documents: see DocumentDataModule, AnswerEvaluation, MultimodalDataModule and LockstepDataModule.
    """

    def __init__(
        self,
        manuals: ManualSettings | None = None,
        questions: ManualQuestionSettings | None = None,
        seed: int = 0,
        num_samples: int = 3200,
        fresh_samples: bool = True,
        validation_size: int = 300,
        test_size: int = 1200,
        one_page_chats: bool = False,
        caption_epochs: int = 0,
        questions_per_manual: int = 4,
        root: str = "data/document_qa/manuals",
        written_manuals: int = 24,
        **documents: Unpack[DocumentOptions],
    ) -> None:
        super().__init__(**documents)
        self.sampler = QuestionSampler(manuals or ManualSettings(), questions or ManualQuestionSettings())
        self.seed, self.fresh_samples, self.root = seed, fresh_samples, root
        self.one_page_chats, self.caption_epochs = one_page_chats, caption_epochs
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        self.questions_per_manual, self.written_manuals = questions_per_manual, written_manuals
        numbers = {
            "num_samples": num_samples, "validation_size": validation_size, "test_size": test_size,
            "questions_per_manual": questions_per_manual, "written_manuals": written_manuals,
        }  # fmt: skip
        check_numbers("data.init_args.", numbers, at_least=1)
        check_number("data.init_args.caption_epochs", caption_epochs, at_least=0)

    @override
    def dataset_card(self) -> DatasetCard:
        train, validation, test = self.sizes.values()
        content = (
            f"Manuals of devices that do not exist, with questions about them: {train:,} chats an epoch; "
            f"{validation:,} questions to validate and {test:,} to test."
        )
        return DatasetCard("Lockstep's synthetic manuals", content, GENERATED)

    def prepare(self) -> None:
        """Write test manuals as PDFs with their questions, unless the same manuals exist already."""
        super().prepare()
        manuals, questions = self._recorded_settings()
        identity = json.dumps(
            {"manuals": manuals, "asking": questions, "seed": self.seed}
            | {"number": self.written_manuals, "questions": self.questions_per_manual, "version": GENERATOR_VERSION},
            sort_keys=True,
        )
        number = self.written_manuals * self.questions_per_manual
        write_manuals(self._questions(Split.TEST, number), Path(self.root), identity)

    @override
    def question_set(self, split: SplitName) -> ManualQuestionSet:
        return self._questions(_SPLITS[split], self.sizes[_SPLITS[split]])

    def _questions(self, split: Split, size: int) -> ManualQuestionSet:
        return ManualQuestionSet(
            sampler=self.sampler,
            split=split,
            size=size,
            seed=self.seed,
            per_chat=self.questions_per_chat,
            per_manual=self.questions_per_manual,
            fresh=self.fresh_samples,
            one_page=self.one_page_chats,
            caption_epochs=self.caption_epochs,
        )

    @override
    def texts(self) -> Iterator[str]:
        # The texts cover all kinds of questions, so all stages of a training have the same vocabulary.
        questions = ManualQuestionSettings(unseen_wordings=0.3, page_mentions=0.2)
        everything = ManualQuestionSet(
            QuestionSampler(ManualSettings(), questions), Split.TEST, _TEXTS, _TEXTS_SEED, per_manual=4
        )
        for index in range(_TEXTS):
            manual = everything.document(0, index)
            if index % 4 == 0:
                yield "\n".join(f"Page {page.number}\n{chunk.text}" for page in manual.pages for chunk in page.chunks)
                yield from (everything.sampler.description(chapter) for chapter in manual.device.chapters)
            (question,) = everything.questions(0, index)
            options = (f"{letter}. {option}" for letter, option in zip("ABCD", question.options, strict=False))
            yield "\n".join([question.question, *options, question.answer or ""])

    def _order_identity(self) -> dict[str, Any]:
        # A run that is resumed within an epoch must find the same samples in the same order.
        return {**super()._order_identity(), "manuals": self.sample_identity()}

    def sample_identity(self) -> str:
        """Return everything that the samples depend on, as text."""
        manuals, questions = self._recorded_settings()
        # Named only if set, so that runs from before the setting can be resumed.
        stated = ", stated_parts" if questions.pop("stated_parts") else ""
        # Checkpoints compare this text, so it keeps the old name of `caption_epochs`.
        return (
            f"{recorded_text('ManualSettings', manuals)}, {recorded_text('ManualQuestionSettings', questions)}, "
            f"seed={self.seed}, fresh_samples={self.fresh_samples}, "
            f"one_page_chats={self.one_page_chats}, describing_epochs={self.caption_epochs}, "
            f"version {GENERATOR_VERSION}{stated}"
        )

    def _recorded_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        manuals = recorded_fields(self.sampler.manuals, {"parts_per_chapter": "parts"})
        names = {"task_mix": "kinds", "answer_letter_weights": "letters"}
        return manuals, recorded_fields(self.sampler.questions, names)
