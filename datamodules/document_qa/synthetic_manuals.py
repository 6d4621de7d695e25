"""Embedded data: synthetic manuals, as they are needed, with questions that only the document answers."""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datamodules.document_qa.datamodule import DocumentDataModule
from datamodules.document_qa.datamodule import Split as SplitName
from datamodules.document_qa.manuals.asking import Asker
from datamodules.document_qa.manuals.manual import GENERATOR_VERSION
from datamodules.document_qa.manuals.manual_questions import ManualQuestions
from datamodules.document_qa.manuals.settings import AskingSettings, ManualSettings, Split
from datamodules.document_qa.manuals.written import write_manuals
from engine.exported import GENERATED, DataDescription

log = logging.getLogger("lockstep")

_TEXTS = 1500
"""Samples whose texts the built-in tokenizer is made from."""

_TEXTS_SEED = 0x7E875
"""Theirs alone, so that none of them is a manual that is tested with."""

_SPLITS: dict[SplitName, Split] = {
    "train": Split.TRAIN, "validation": Split.VALIDATION, "test": Split.TEST, "predict": Split.TEST
}  # fmt: skip


class SyntheticManuals(DocumentDataModule):
    """Manuals of devices: prose, tables and drawings of numbered parts, chapters about other assemblies to distract.

    Whatever guesses from a question and its options alone is at chance. Manuals of training, validation and test are
    different ones.

    Args:
        manuals: what manuals are like.
        asking: what is asked about them.
        seed: of the samples.
        num_samples: chats of an epoch, each about a manual of its own.
        fresh_samples: other samples in every epoch instead of the same ones again.
        validation_size: questions of a validation.
        test_size: questions of a test, and of predict.
        one_page_chats: in training, the questions of a chat follow from the same page, so its context is short.
        describing_epochs: epochs at the start in which a chat about a drawing describes it as a whole: of that a tower learns to see far sooner than of single questions.
        questions_per_manual: of a validation and a test so many questions are about the same manual.
        root: folder for what `prepare` writes: manuals of the test as PDFs, with their questions.
        written_manuals: how many of them.
        documents: see DocumentDataModule, ImageDataModule, MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    def __init__(
        self,
        manuals: ManualSettings | None = None,
        asking: AskingSettings | None = None,
        seed: int = 0,
        num_samples: int = 3200,
        fresh_samples: bool = True,
        validation_size: int = 300,
        test_size: int = 1200,
        one_page_chats: bool = False,
        describing_epochs: int = 0,
        questions_per_manual: int = 4,
        root: str = "data/document_qa/manuals",
        written_manuals: int = 24,
        **documents: Any,
    ) -> None:
        super().__init__(**documents)
        self.asker = Asker(manuals or ManualSettings(), asking or AskingSettings())
        self.seed, self.fresh_samples, self.root = seed, fresh_samples, root
        self.one_page_chats, self.describing_epochs = one_page_chats, describing_epochs
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        self.questions_per_manual, self.written_manuals = questions_per_manual, written_manuals
        numbers = {
            "num_samples": num_samples, "validation_size": validation_size, "test_size": test_size,
            "questions_per_manual": questions_per_manual, "written_manuals": written_manuals,
        }  # fmt: skip
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, got {number}")

    def description(self) -> DataDescription:
        train, validation, test = self.sizes.values()
        content = (
            f"Manuals of devices that do not exist, with questions about them: {train:,} chats an epoch; "
            f"{validation:,} questions to validate and {test:,} to test."
        )
        return DataDescription("Lockstep's synthetic manuals", content, GENERATED)

    def prepare(self) -> None:
        """Writes manuals of the test as PDFs, with their questions, unless these very ones are there."""
        super().prepare()
        identity = json.dumps(
            {"manuals": asdict(self.asker.manuals), "asking": asdict(self.asker.asking), "seed": self.seed}
            | {"number": self.written_manuals, "questions": self.questions_per_manual, "version": GENERATOR_VERSION},
            sort_keys=True,
        )
        number = self.written_manuals * self.questions_per_manual
        write_manuals(self._questions(Split.TEST, number), Path(self.root), identity)

    def question_set(self, split: SplitName) -> ManualQuestions:
        return self._questions(_SPLITS[split], self.sizes[_SPLITS[split]])

    def _questions(self, split: Split, size: int) -> ManualQuestions:
        return ManualQuestions(
            self.asker,
            split,
            size,
            self.seed,
            self.questions_per_chat,
            self.questions_per_manual,
            self.fresh_samples,
            self.one_page_chats,
            self.describing_epochs,
        )

    def texts(self) -> Iterator[str]:
        # Of everything that can be said, so that every stage of a training has the same tokens, whatever it asks.
        asking = AskingSettings(unseen_wordings=0.3, page_mentions=0.2)
        everything = ManualQuestions(Asker(ManualSettings(), asking), Split.TEST, _TEXTS, _TEXTS_SEED, per_manual=4)
        for index in range(_TEXTS):
            manual = everything.document(0, index)
            if index % 4 == 0:
                yield "\n".join(f"Page {page.number}\n{chunk.text}" for page in manual.pages for chunk in page.chunks)
                yield from (everything.asker.description(chapter) for chapter in manual.device.chapters)
            (question,) = everything.questions(0, index)
            options = (f"{letter}. {option}" for letter, option in zip("ABCD", question.options, strict=False))
            yield "\n".join([question.question, *options, question.answer or ""])

    def _what_is_ordered(self) -> dict[str, Any]:
        # In the middle of an epoch the samples that are left must be those that were left.
        made_by = (
            f"{self.asker.manuals}, {self.asker.asking}, seed={self.seed}, fresh_samples={self.fresh_samples}, "
            f"one_page_chats={self.one_page_chats}, describing_epochs={self.describing_epochs}, "
            f"version {GENERATOR_VERSION}"
        )
        return {**super()._what_is_ordered(), "manuals": made_by}
