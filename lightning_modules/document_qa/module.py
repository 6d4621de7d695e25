"""The document-QA family's LightningModule: a language model that reads pages, tables and figures, and answers."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.document_qa.batch import AnswerRecord, Asked, OptionExamples
from datamodules.multimodal.batch import IGNORE, Examples
from engine.exact_mean import LossSum
from engine.examples import Example
from engine.gather import gathered, gathered_objects
from engine.shown_samples import chosen
from lightning_modules.document_qa import losses
from lightning_modules.document_qa.answering import Answering
from lightning_modules.document_qa.losses import Loss
from lightning_modules.document_qa.prompt_parts import Part
from lightning_modules.multimodal.image_chat_module import ImageChatModule
from lightning_modules.multimodal.language_model import Criterion, LanguageModelSettings, cross_entropy
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.reading import Reading
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings

PREDICTIONS = "predictions.jsonl"
"""What the callback PredictionFile writes."""


class DocumentReader(ImageChatModule):
    """Answers questions about documents: choices by how likely each option is, open questions in words.

    Args:
        language_model: the language model that reads the features.
        vision_tower: makes features of an image's patches.
        projector: from the tower's features to the language model's.
        loss: what training makes small: `answer` (cross-entropy of the right answers' tokens), `label_smoothing`, `focal`, or `contrastive_options` (`answer`, and the choice of the right option among all of a question's).
        smoothing: share of each target that label smoothing spreads over all tokens.
        focal_gamma: how much less the focal loss weighs tokens that are known already; 0: none.
        contrast_weight: of the choice in `contrastive_options`, beside the answer's cross-entropy.
        evidence_questions: first questions of a test whose evidence is looked for: each is asked once more for every chunk of its context, without it; at most data.context.evidence_chunks.
        predict_evidence: whether `predict` looks for the evidence of all its questions: as often as a context has chunks, each question is read once more.
        training: see ImageModule, ChatModule and LockstepModule.
    """  # noqa: E501

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        loss: Loss = "answer",
        smoothing: float = 0.1,
        focal_gamma: float = 2.0,
        contrast_weight: float = 1.0,
        evidence_questions: int = 0,
        predict_evidence: bool = True,
        **training: Any,
    ) -> None:
        super().__init__(language_model, vision_tower, projector, **training)
        if not 0 <= smoothing < 1:
            raise ValueError(f"model.init_args.smoothing is a share, from 0 to below 1; got {smoothing}")
        not_negative = {"focal_gamma": focal_gamma, "contrast_weight": contrast_weight}
        not_negative["evidence_questions"] = evidence_questions
        for name, value in not_negative.items():
            if value < 0:
                raise ValueError(f"model.init_args.{name} must not be negative, got {value}")
        self.loss: Loss = loss
        self.contrast_weight = contrast_weight
        self.evidence_questions, self.predict_evidence = evidence_questions, predict_evidence
        self._records: list[AnswerRecord] = []
        self._shown: list[AnswerRecord] = []
        criteria = {"label_smoothing": losses.label_smoothing(smoothing), "focal": losses.focal(focal_gamma)}
        self.criterion: Criterion = criteria.get(loss, cross_entropy)

    # -- training ----------------------------------------------------------------------------------------------------

    def training_loss(self, batch: Sequence[Examples | OptionExamples]) -> LossSum:
        """Of a micro-batch in parts, each with whole questions."""
        score = self._contrast if self.loss == "contrastive_options" else self._answers
        total, count = (torch.stack(figures).sum() for figures in zip(*map(score, batch), strict=True))
        return LossSum(total, count)

    def _answers(self, part: Examples) -> tuple[Tensor, Tensor]:
        states = self._states(part.rows, self.features(part.modality))
        return self.language_model.loss(states, part.rows.labels, self.criterion)

    def _contrast(self, part: OptionExamples) -> tuple[Tensor, Tensor]:
        rows = part.rows
        terms = self.language_model.terms(self._states(rows, self.features(part.modality)), rows.labels)
        sums, lengths = losses.of_chats(terms, rows.labels, rows.positions, IGNORE)
        total = losses.contrastive_options(-sums, lengths, part.questions, part.right, self.contrast_weight)
        return total, lengths[part.right].sum()

    # -- evaluation --------------------------------------------------------------------------------------------------

    @cached_property
    def answering(self) -> Answering:
        """How questions are asked."""
        tokenizer, data = self.data.tokenizer, self.data
        return Answering(
            self._read, tokenizer.decode, tokenizer.end_of_turn, self.max_new_tokens,
            lambda sample: data.question(sample).right, self._most if self.in_step else None,
        )  # fmt: skip

    def _read(self, part: Part) -> Reading:
        embeddings = self._embed(part.prompts, self.features(part.images))
        return Reading(self.language_model, embeddings, part.prompts.mask)

    def _most(self, number: int) -> int:
        return int(gathered(torch.tensor(number, device=self.device)).max())

    def on_validation_epoch_start(self) -> None:
        self._begin_evaluation()

    def validation_step(self, batch: Asked, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        records = {record.sample: record for record in self._end_evaluation("val")}
        self._shown = [records[sample] for sample in chosen(records, self.shown_samples.number)]

    def examples(self) -> list[Callable[[], Example]]:
        """Questions with the right answers, the model's, and what it says without the document."""
        return [partial(self.data.example, record) for record in self._shown]

    def on_test_epoch_start(self) -> None:
        self._begin_evaluation()

    def test_step(self, batch: Asked, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        records = self._end_evaluation("test")
        if self.trainer.is_global_zero:
            self.data.write_test_report(Path(self.trainer.default_root_dir), records)

    def _begin_evaluation(self) -> None:
        self._records = []

    def _evaluate(self, batch: Asked) -> None:
        self._records += self.answering.records(batch)

    def _end_evaluation(self, stage: str) -> list[AnswerRecord]:
        """Logs the figures of all processes' records, and returns these in the order of the samples, each once."""
        found = {record.sample: record for process in gathered_objects(self._records) for record in process}
        self._records = []
        records = [found[sample] for sample in sorted(found)]
        for name, value in self.data.summary(records).items():
            figure = torch.tensor(value, dtype=torch.float32, device=self.device)
            self.log(f"{stage}/{name}", figure, prog_bar=(stage, name) == ("val", "accuracy"), batch_size=1)
        return records

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict_step(self, batch: Asked, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        said = [(record.sample, self.data.predicted(record)) for record in self.answering.records(batch)]
        # Nobody must wonder which line an answer is to.
        unanswered = ((row, {**self.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.left_out)
        return sorted([*said, *unanswered], key=lambda line: line[0])

    def on_predict_end(self) -> None:
        # By now PredictionFile has put together what the processes have written.
        if self.trainer.is_global_zero:
            folder = Path(self.trainer.default_root_dir)
            self.data.write_prediction_report(folder, folder / PREDICTIONS)
