"""Trains a dense retriever: a LightningModule that maps questions and pages to vectors that lie close together.

    chat -> tower, projector, language model -> state of the last token -> projection head -> vector

A page becomes a single vector, as in E5 (Wang et al., "Improving Text Embeddings with Large Language Models", ACL
2024), so the index of a document stays small. The networks that read a page are of the same classes as the reader's.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from typing_extensions import override

from datamodules.document_qa.batch import RetrievalPairs
from datamodules.document_qa.interface import RetrievalData
from datamodules.multimodal.batch import Images, TokenRows
from engine.base_options import Unpack
from engine.number_check import check_numbers
from engine.optim.global_loss_mean import LossSum
from lightning_modules.document_qa.answering.length_buckets import bucket_rows
from lightning_modules.document_qa.contrastive import ProjectionHead, Temperature, info_nce
from lightning_modules.document_qa.ranking_evaluation import PageRankingEvaluation
from lightning_modules.multimodal.connector.merge_embeddings import Features
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.image_module import ImageModule
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.vision.settings import VisionTowerSettings


class PageRetriever(ImageModule[RetrievalData]):
    """Learns to rank the pages of a document for a question, by InfoNCE among the pages of the global batch.

    Args:
        language_model: reads questions and pages.
        vision_tower: computes features of pages' images.
        projector: maps the tower's features to the language model's embeddings.
        size: width D of the vectors of questions and pages.
        symmetric: also learn to find the question of each page among the questions of the batch.
        encode_at_once: number of questions or pages in a forward pass. Training keeps only the vectors of the others
            and computes them again in the backward pass (GradCache, Gao et al., 2021), so the global batch, and with
            it the number of negatives, may exceed the memory of a device. null: all in one pass.
        blind: train and evaluate on black images, as a baseline.
        training: see LanguageModule and LockstepModule; the parts in `learning_rates` are vision_tower, projector,
            language_model and head.
    """

    extra = "documents"
    terms_per_sample = 1
    predicts_at_the_end = True
    supports_grad_accumulation = False

    evaluation: PageRankingEvaluation
    head: ProjectionHead
    temperature: Temperature

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        projector: ProjectorSettings | None = None,
        size: int = 128,
        symmetric: bool = False,
        encode_at_once: int | None = None,
        blind: bool = False,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        super().__init__(language_model, vision_tower, projector, blind, **training)
        check_numbers("model.init_args.", {"size": size, "encode_at_once": encode_at_once}, at_least=1)
        if language_model.loss_kernel == "liger":
            raise ValueError(
                "model.init_args.language_model.loss_kernel is liger, a cross-entropy of tokens, but a retriever "
                "predicts no tokens. Set it to torch"
            )
        self.size, self.symmetric, self.encode_at_once = size, symmetric, encode_at_once
        self.optional_weights += ("head.", "temperature.")

    @override
    def memory_saving_options(self) -> list[tuple[str, str]]:
        if self.sharded:  # `setup` refuses encode_at_once
            return super().memory_saving_options()
        pieces = self.encode_at_once or self.data.plan.micro_batch_size
        smaller = (f"--model.init_args.encode_at_once {pieces // 2}", "the same training, with every vector made twice")
        return [smaller, *super().memory_saving_options()] if pieces > 1 else super().memory_saving_options()

    # -- building ----------------------------------------------------------------------------------------------------

    @override
    def setup(self, stage: str) -> None:
        super().setup(stage)
        # Here and not in __init__: the module gets its data later.
        if self.data.task != "retrieve":
            raise ValueError(
                f"data.init_args.task is {self.data.task}, but {type(self).__name__} ranks pages for questions: set "
                "data.init_args.task retrieve"
            )
        if stage == "fit" and self.data.plan.accumulation > 1:
            raise ValueError(
                f"{self.data.plan}: the loss compares a question with the pages of the whole global batch, so each "
                "rank must compute its share at once. Remove data.init_args.micro_batch_size and set "
                f"model.init_args.encode_at_once, {self.data.plan.micro_batch_size} or more: it saves the same memory"
            )
        if self.encode_at_once is not None and self.sharded:
            raise ValueError(
                "model.init_args.encode_at_once gives ranks different numbers of forward passes, but with sharded "
                "weights (FSDP) all need the same number. Remove it, and save memory by "
                "model.init_args.language_model.activation_checkpointing instead"
            )

    @override
    def build(self) -> None:
        super().build()
        # After all other networks, so that reader and retriever get the same initial weights from a seed.
        self.head, self.temperature = ProjectionHead(self.language_model.hidden_size, self.size), Temperature()
        causal = self.language_model.causal_lm
        output = causal.get_output_embeddings()
        if output.weight is not causal.get_input_embeddings().weight:
            output.requires_grad_(False)  # no token is predicted here, so it would get no gradient

    @property
    @override
    def parts(self) -> dict[str, nn.Module]:
        return {**super().parts, "head": nn.ModuleList([self.head, self.temperature])}

    # -- training ----------------------------------------------------------------------------------------------------

    @override
    def training_loss(self, batch: RetrievalPairs) -> LossSum:
        questions, pages = self.encode(batch.questions), self.encode(batch.pages, batch.images)
        scale = self.temperature()
        self._scale = scale.detach()
        total = info_nce(questions, pages, batch.evidence, batch.keys, scale, self.symmetric)
        # The number of questions: each rank adds its share, and the sum is divided by the global batch.
        return LossSum(total, len(questions))

    @override
    def throughput_counts(self, batch: RetrievalPairs) -> dict[str, float]:
        rows = (batch.questions, batch.pages)
        return {
            "tokens": sum(each.counts.real for each in rows),
            "positions": sum(each.tokens.numel() for each in rows),
            "image_tokens": batch.pages.counts.features,
        }

    @override
    def optimizer_step(self, *step: Any, **options: Any) -> None:
        super().optimizer_step(*step, **options)
        # After the step: the optimizer's update may leave the interval. All ranks clamp the same value.
        self.temperature.clamp()

    @override
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        if self.is_log_step:
            self.log("train/temperature", 1 / self._scale.squeeze(), on_step=True, on_epoch=False, batch_size=1)

    # -- vectors -----------------------------------------------------------------------------------------------------

    def encode(self, rows: TokenRows, images: Images | None = None) -> Tensor:
        """Return unit vectors [S, D] float32, one for each chat of the rows.

        Args:
            rows: questions or pages, one chat in a row.
            images: images of the pages; None for questions.
        """
        vectors, indices = [], []
        # Without gradients no activations are kept, so there is nothing to compute again.
        recompute = self.encode_at_once is not None and torch.is_grad_enabled()
        for bucket in bucket_rows(rows, images, self._bucket_size(len(rows.samples))):
            if recompute:
                vectors.append(checkpoint(self._encode_bucket, bucket.rows, bucket.images, use_reentrant=False))
            else:
                vectors.append(self._encode_bucket(bucket.rows, bucket.images))
            indices.append(bucket.indices)
        # Buckets are ordered by length; argsort of their indices is the inverse permutation. [S, D]
        return torch.cat(vectors)[torch.cat(indices).argsort()]

    def _bucket_size(self, chats: int) -> int | None:
        if self.sharded:  # all ranks need the same number of forward passes
            return None
        size = -(-chats // self.data.length_groups)
        return size if self.encode_at_once is None else min(size, self.encode_at_once)

    def _encode_bucket(self, rows: TokenRows, images: Images | None) -> Tensor:
        # [rows, L, C]
        states = self.states(rows, self._no_features(rows) if images is None else self.features(images))
        every = torch.arange(len(states), device=states.device)
        # A rank without a chat has a row of padding, so that every weight takes part; its vector is cut off here.
        return self.head(states[every, rows.lengths - 1])[: len(rows.samples)]

    def _no_features(self, rows: TokenRows) -> Features:
        vectors = torch.zeros(0, self.language_model.hidden_size, device=rows.tokens.device)
        return Features(vectors, torch.zeros_like(rows.placeholders))

    # -- evaluation and prediction -----------------------------------------------------------------------------------

    @override
    def build_evaluation(self) -> PageRankingEvaluation:
        return PageRankingEvaluation()

    @override
    def on_predict_epoch_start(self) -> None:
        super().on_predict_epoch_start()
        self.evaluation.begin()

    @override
    def on_predict_epoch_end(self) -> None:
        super().on_predict_epoch_end()
        self.evaluation.write_rankings(self)

    # -- exports -----------------------------------------------------------------------------------------------------

    @override
    def export_networks(self) -> dict[str, nn.Module]:
        return {**super().export_networks(), "head": self.head}

    @override
    def export_settings(self) -> dict[str, Any]:
        head = {"size": self.size, "reads": "the state of a prompt's last token", "normalised": True}
        return {**super().export_settings(), "head": head}
