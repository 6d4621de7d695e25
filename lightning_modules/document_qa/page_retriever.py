"""Finds the pages that a question is about: both become vectors, near each other where one answers the other.

    chat -> tower, projector, language model -> state of its last token -> projection head -> vector

A page becomes one vector, as in E5 (Wang et al., "Improving Text Embeddings with Large Language Models", ACL 2024), so
a document's are small enough to be kept; what is on it, text, tables and figures, is read by the reader's own parts.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from datamodules.document_qa.batch import Candidates, QuestionsAndPages, Ranking, RetrievalPairs
from datamodules.multimodal.batch import Images, Rows
from engine.exact_mean import LossSum
from engine.gather import gathered_objects
from lightning_modules.document_qa.contrast import ProjectionHead, Temperature, contrast
from lightning_modules.document_qa.row_parts import lengths, row_parts
from lightning_modules.multimodal.image_module import ImageModule
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.splice import Features
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings


class PageRetriever(ImageModule):
    """Learns to rank the pages of a document for a question, by InfoNCE among the pages of the whole global batch.

    Args:
        language_model: reads questions and pages.
        vision_tower: makes features of pages' images.
        size: of the vectors that questions and pages become.
        symmetric: learn to tell the question from its page, too, among the questions of the batch.
        encode_at_once: questions or pages that are computed at once; in training only the vectors are kept of the others, which are computed again in the backward pass (GradCache, Gao et al., 2021). So a global batch, and with it the number of wrong pages, may be larger than what fits one device. null: all at once.
        training: see ImageModule and LockstepModule; the parts that may have a rate of their own in `learning_rates` are vision_tower, projector, language_model and head.
    """  # noqa: E501

    may_be_new = (*ImageModule.may_be_new, "head.", "temperature.")
    predicts_at_the_end = True
    splits_batches = False

    head: ProjectionHead
    temperature: Temperature

    def __init__(
        self,
        language_model: LanguageModelSettings,
        vision_tower: VisionTowerSettings,
        size: int = 128,
        symmetric: bool = False,
        encode_at_once: int | None = None,
        **training: Any,
    ) -> None:
        super().__init__(language_model, vision_tower, **training)
        for name, value in (("size", size), ("encode_at_once", encode_at_once)):
            if value is not None and value < 1:
                raise ValueError(f"model.init_args.{name} must be at least 1, got {value}")
        self.size, self.symmetric, self.encode_at_once = size, symmetric, encode_at_once
        self._found: list[tuple[Tensor, Tensor]] = []  # of an evaluation: (numbers [n], vectors [n, D])

    def memory_savers(self) -> list[tuple[str, str]]:
        if self.in_step:  # a process may not compute more often than the others
            return super().memory_savers()
        pieces = self.encode_at_once or self.data.plan.micro_batch_size
        smaller = (f"--model.init_args.encode_at_once {pieces // 2}", "the same training, with every vector made twice")
        return [smaller, *super().memory_savers()] if pieces > 1 else super().memory_savers()

    # -- building ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.data.task != "retrieve":
            raise ValueError(
                f"data.init_args.task is {self.data.task}, but {type(self).__name__} ranks pages for questions: set "
                "data.init_args.task retrieve"
            )
        if stage == "fit" and self.data.plan.accumulation > 1:
            raise ValueError(
                f"{self.data.plan}: a question is compared with the pages of the whole global batch, so a process must "
                "read its share at once. Leave data.init_args.micro_batch_size out and give what fits one device as "
                f"model.init_args.encode_at_once, {self.data.plan.micro_batch_size} or more: it saves the same memory"
            )
        if self.encode_at_once is not None and self.in_step:
            raise ValueError(
                "model.init_args.encode_at_once computes as often as a process has texts, but with shards of the "
                "weights (FSDP) all must compute equally often: leave it out, and save memory by "
                "model.init_args.language_model.activation_checkpointing instead"
            )

    def build(self) -> None:
        super().build()
        self.head, self.temperature = ProjectionHead(self.language_model.hidden_size, self.size), Temperature()
        causal = self.language_model.causal
        scores = causal.get_output_embeddings()
        if scores.weight is not causal.get_input_embeddings().weight:
            scores.requires_grad_(False)  # nothing is written here, so it would get no gradient

    @property
    def parts(self) -> dict[str, nn.Module]:
        return {**super().parts, "head": nn.ModuleList([self.head, self.temperature])}

    # -- training ----------------------------------------------------------------------------------------------------

    def training_loss(self, batch: RetrievalPairs) -> LossSum:
        questions, pages = self._vectors(batch.questions), self._vectors(batch.pages, batch.images)
        scale = self.temperature()
        self._scale = scale.detach()
        total = contrast(questions, pages, batch.evidence, batch.keys, scale, self.symmetric)
        return LossSum(total, len(questions))

    def amounts(self, batch: RetrievalPairs) -> dict[str, float]:
        rows = (batch.questions, batch.pages)
        return {
            "tokens": sum(each.counts.real for each in rows),
            "positions": sum(each.tokens.numel() for each in rows),
            "image_tokens": batch.pages.counts.features,
        }

    def optimizer_step(self, *step: Any, **options: Any) -> None:
        super().optimizer_step(*step, **options)
        self.temperature.bound()

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        if self.is_log_step:
            self.log("train/temperature", 1 / self._scale.squeeze(), on_step=True, on_epoch=False, batch_size=1)

    # -- vectors -----------------------------------------------------------------------------------------------------

    def _vectors(self, rows: Rows, images: Images | None = None) -> Tensor:
        """[S, D] float32 of length 1, one for each chat of the rows."""
        found, places = [], []
        compute_again = self.encode_at_once is not None and torch.is_grad_enabled()
        for part in row_parts(rows, images, self._at_once(len(rows.samples))):
            if compute_again:
                found.append(checkpoint(self._embedded, part.rows, part.images, use_reentrant=False))
            else:
                found.append(self._embedded(part.rows, part.images))
            places.append(part.places)
        return torch.cat(found)[torch.cat(places).argsort()]

    def _at_once(self, chats: int) -> int | None:
        """How many of so many chats are computed at once; None: all."""
        if self.in_step:  # all processes must compute equally often
            return None
        each = -(-chats // self.data.length_groups)
        return each if self.encode_at_once is None else min(each, self.encode_at_once)

    def _embedded(self, rows: Rows, images: Images | None) -> Tensor:
        states = self._states(rows, self._no_features(rows) if images is None else self.features(images))
        every = torch.arange(len(states), device=states.device)
        # Of no chat there is a row of padding all the same, so that every weight takes part.
        return self.head(states[every, lengths(rows) - 1])[: len(rows.samples)]

    def _no_features(self, rows: Rows) -> Features:
        vectors = torch.zeros(0, self.language_model.hidden_size, device=rows.tokens.device)
        return Features(vectors, torch.zeros_like(rows.placeholders))

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._begin()

    def validation_step(self, batch: QuestionsAndPages, batch_idx: int) -> None:
        self._read(batch)

    def on_validation_epoch_end(self) -> None:
        self._end("val")

    def on_test_epoch_start(self) -> None:
        self._begin()

    def test_step(self, batch: QuestionsAndPages, batch_idx: int) -> None:
        self._read(batch)

    def on_test_epoch_end(self) -> None:
        self._end("test")

    def _begin(self) -> None:
        self._found = []

    def _read(self, batch: QuestionsAndPages) -> None:
        for rows, images in ((batch.questions, None), (batch.pages, batch.images)):
            if len(rows.samples) or self.in_step:
                self._found.append((rows.samples.cpu(), self._vectors(rows, images).cpu()))

    def _end(self, stage: str) -> None:
        for name, value in self.data.evaluated.figures(self._rankings()).items():
            value = torch.tensor(value, dtype=torch.float32, device=self.device)
            self.log(f"{stage}/{name}", value, prog_bar=stage == "val" and name == "mrr", batch_size=1)

    def _rankings(self) -> list[Ranking]:
        """Of the questions of all processes, on each of them."""
        own = [torch.cat(kind).numpy() for kind in zip(*self._found, strict=True)] if self._found else None
        self._found = []
        vectors: dict[int, NDArray[np.float32]] = {}
        for one in gathered_objects(own):
            if one is not None:
                vectors.update(zip(one[0].tolist(), one[1], strict=True))
        return [ranked(one, vectors) for one in self.data.evaluated.candidates if one.question in vectors]

    # -- prediction --------------------------------------------------------------------------------------------------

    def on_predict_epoch_start(self) -> None:
        super().on_predict_epoch_start()
        self._found = []

    def predict_step(self, batch: QuestionsAndPages, batch_idx: int) -> list[Any]:
        self._read(batch)
        return []

    def on_predict_epoch_end(self) -> None:
        super().on_predict_epoch_end()
        rankings = self._rankings()
        if self.trainer.is_global_zero:
            self.data.evaluated.write(Path(self.trainer.default_root_dir), rankings)

    # -- other forms -------------------------------------------------------------------------------------------------

    @property
    def own_networks(self) -> dict[str, nn.Module]:
        return {**super().own_networks, "head": self.head}

    def own_description(self) -> dict[str, Any]:
        head = {"size": self.size, "reads": "the state of a prompt's last token", "normalised": True}
        return {**super().own_description(), "head": head}


def ranked(candidates: Candidates, vectors: dict[int, NDArray[np.float32]]) -> Ranking:
    """A document's pages for a question, by cosine to six digits; of equal ones the first comes first.

    Args:
        vectors: of questions and pages by their numbers, of length 1; a page without one is not ranked.
    """
    known = [(number, vectors[page]) for number, page in enumerate(candidates.pages, 1) if page in vectors]
    if not known:
        return Ranking(candidates.question, (), ())
    numbers, pages = zip(*known, strict=True)
    scores = (np.stack(pages).astype(np.float64) @ vectors[candidates.question].astype(np.float64)).round(6)
    order = np.argsort(-scores, kind="stable")
    return Ranking(candidates.question, tuple(numbers[place] for place in order), tuple(scores[order].tolist()))
