"""Trains a language model to answer questions about documents: the LightningModule of the reader."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from torch import Tensor
from typing_extensions import override

from datamodules.document_qa.batch import OptionTrainBatch
from datamodules.document_qa.interface import DocumentData
from datamodules.multimodal.batch import IGNORE, ChatTrainBatch
from engine.base_options import Unpack
from engine.number_check import check_number
from lightning_modules.document_qa import losses
from lightning_modules.document_qa.answering.answerer import QuestionAnswerer
from lightning_modules.document_qa.answering.evaluation import DocumentEvaluation
from lightning_modules.document_qa.answering.length_buckets import PromptBucket
from lightning_modules.document_qa.losses import Loss
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.image_module import ImageTextModule
from lightning_modules.multimodal.language.language_model import Criterion, cross_entropy
from lightning_modules.multimodal.language.prefix_cache import PrefixCache, maximum_over_ranks
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.vision.settings import VisionTowerSettings

PREDICTIONS = "predictions.jsonl"
"""File that the callback PredictionWriter writes."""


class DocumentReader(ImageTextModule[DocumentData]):
    """Answers questions about documents: ranks options by their likelihood, and generates answers to open questions.

    Args:
        language_model: the language model that reads the features.
        vision_tower: computes features of an image's patches.
        projector: maps the tower's features to the language model's embeddings.
        loss: training loss: `answer` (cross-entropy of the right answers' tokens), `label_smoothing`, `focal`, or
            `contrastive_options` (`answer` plus the cross-entropy of the right option among the question's options).
        label_smoothing: share of each target that label smoothing spreads over all tokens.
        focal_gamma: exponent of the focal loss; 0 is cross-entropy.
        contrast_weight: weight of the choice among options in `contrastive_options`.
        evidence_questions: number of test questions whose evidence is searched. Each is answered again without each
            chunk of its context, at most data.context.evidence_chunks times.
        predict_evidence: whether `predict` searches the evidence of its questions. Each question is read once more for
            every chunk of its context.
        blind: train and evaluate on black images, as a baseline.
        max_new_tokens: maximum length of an answer that an evaluation generates.
        training: see LanguageModule and LockstepModule; the parts in `learning_rates` are vision_tower, projector and
            language_model.
    """

    extra = "documents"

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        loss: Loss = "answer",
        label_smoothing: float = 0.1,
        focal_gamma: float = 2.0,
        contrast_weight: float = 1.0,
        evidence_questions: int = 0,
        predict_evidence: bool = True,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model, vision_tower, projector, blind, max_new_tokens, **training)
        check_number("model.init_args.label_smoothing", label_smoothing, at_least=0, below=1)
        check_number("model.init_args.focal_gamma", focal_gamma, at_least=0)
        check_number("model.init_args.contrast_weight", contrast_weight, at_least=0)
        check_number("model.init_args.evidence_questions", evidence_questions, at_least=0)
        self.loss: Loss = loss
        self.contrast_weight = contrast_weight
        self.evidence_questions, self.predict_evidence = evidence_questions, predict_evidence
        # contrastive_options needs whole options and not single tokens, so `part_loss` computes it.
        criteria = {"label_smoothing": losses.label_smoothing(label_smoothing), "focal": losses.focal(focal_gamma)}
        if language_model.loss_kernel == "liger" and loss in criteria:
            raise ValueError(
                f"model.init_args.language_model.loss_kernel is liger, which has no loss {loss}. Set it to torch, or "
                "model.init_args.loss to answer or contrastive_options"
            )
        self.criterion: Criterion = criteria.get(loss, cross_entropy)

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def part_loss(self, part: ChatTrainBatch | OptionTrainBatch) -> tuple[Tensor, Tensor]:
        states, labels = self.states(part.rows, self.features(part.encoder_input)), part.rows.labels
        if not isinstance(part, OptionTrainBatch):
            return self.language_model.loss(states, labels, self.criterion)
        # The data make OptionTrainBatch if the loss is contrastive_options.
        terms = self.language_model.terms(states, labels)
        # [S] loss and [S] number of supervised tokens of each option
        sums, lengths = losses.sum_per_chat(terms, labels, part.rows.positions, IGNORE)
        total = losses.contrastive_options(-sums, lengths, part.questions, part.right, self.contrast_weight)
        return total, lengths[part.right].sum()

    # -- evaluation --------------------------------------------------------------------------------------------------

    @override
    def build_evaluation(self) -> DocumentEvaluation:
        return DocumentEvaluation()

    @cached_property
    def answering(self) -> QuestionAnswerer:
        """Answers the questions of a batch of the evaluated set."""
        data = self.data
        return self.answerer(lambda sample: data.question(sample).right)

    def answerer(self, right: Callable[[int], int | None]) -> QuestionAnswerer:
        """Return what answers the questions of a batch.

        Args:
            right: returns the index of a sample's right option; None if it is unknown or the question is open.
        """
        tokenizer, agree = self.data.tokenizer, maximum_over_ranks(self.sharded, self.device)
        return QuestionAnswerer(
            self._read_prompts, tokenizer.decode, tokenizer.end_of_turn, self.max_new_tokens, right, self.sharded, agree
        )

    def _read_prompts(self, bucket: PromptBucket) -> PrefixCache:
        embeddings = self.embed(bucket.prompts, self.features(bucket.images))
        return PrefixCache(self.language_model, embeddings, bucket.prompts.mask)

    @override
    def on_predict_end(self) -> None:
        # PredictionWriter has merged the files of all ranks by now.
        if self.trainer.is_global_zero:
            folder = Path(self.trainer.default_root_dir)
            self.data.write_prediction_report(folder, folder / PREDICTIONS)
