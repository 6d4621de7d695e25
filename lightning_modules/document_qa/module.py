"""The document-QA family's LightningModule: a language model that reads pages, tables and figures, and answers."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from datamodules.document_qa.batch import OptionExamples
from datamodules.multimodal.batch import IGNORE, Examples
from engine.exact_mean import LossSum
from lightning_modules.document_qa import losses
from lightning_modules.document_qa.losses import Loss
from lightning_modules.multimodal.image_chat_module import ImageChatModule
from lightning_modules.multimodal.language_model import Criterion, LanguageModelSettings, cross_entropy
from lightning_modules.multimodal.projector import ProjectorSettings
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings


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
        **training: Any,
    ) -> None:
        super().__init__(language_model, vision_tower, projector, **training)
        if not 0 <= smoothing < 1:
            raise ValueError(f"model.init_args.smoothing is a share, from 0 to below 1; got {smoothing}")
        for name, value in (("focal_gamma", focal_gamma), ("contrast_weight", contrast_weight)):
            if value < 0:
                raise ValueError(f"model.init_args.{name} must not be negative, got {value}")
        self.loss: Loss = loss
        self.contrast_weight = contrast_weight
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
