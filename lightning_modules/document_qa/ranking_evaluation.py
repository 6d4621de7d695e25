"""Evaluates a retriever: the ranks of the pages of each question's document."""

from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from datamodules.document_qa.batch import Candidates, QuestionsAndPages, Ranking
from datamodules.document_qa.interface import RetrievalData
from datamodules.multimodal.batch import Images, TokenRows
from engine.distributed.collectives import all_gather_objects
from lightning_modules.multimodal.evaluation.evaluator import EvaluatingTrainer, Evaluator, PredictionLine


class EncodingModule(Protocol):
    """What a PageRankingEvaluation needs of the module. PageRetriever provides it."""

    @property
    def trainer(self) -> EvaluatingTrainer:
        """The run's trainer."""

    @property
    def data(self) -> RetrievalData:
        """The run's data."""

    @property
    def sharded(self) -> bool:
        """Whether all ranks must run the same number of forward passes."""

    def encode(self, rows: TokenRows, images: Images | None = None) -> Tensor:
        """Return vectors [S, D] of chats."""


class PageRankingEvaluation(Evaluator[EncodingModule]):
    """Encodes questions and pages batch by batch, and ranks the pages once all vectors are known."""

    main_metric = "mrr"

    def __init__(self) -> None:
        self._vectors: list[tuple[Tensor, Tensor]] = []  # (samples [n], vectors [n, D]) of this rank

    @override
    def begin(self) -> None:
        self._vectors = []

    @override
    def update(self, module: EncodingModule, batch: QuestionsAndPages) -> None:
        for rows, images in ((batch.questions, None), (batch.pages, batch.images)):
            if len(rows.samples) or module.sharded:
                # On the host: the vectors of all pages of a long evaluation would fill the device.
                self._vectors.append((rows.samples.cpu(), module.encode(rows, images).cpu()))

    @override
    def compute(self, module: EncodingModule) -> dict[str, float]:
        return module.data.evaluated.metrics(self._rankings(module))

    @override
    def predict(self, module: EncodingModule, batch: QuestionsAndPages) -> list[PredictionLine]:
        self.update(module, batch)  # `write_rankings` writes all lines at the end
        return []

    def write_rankings(self, module: EncodingModule) -> None:
        """Write the rankings into the run's folder, on rank 0. Collective."""
        rankings = self._rankings(module)
        if module.trainer.is_global_zero:
            module.data.evaluated.write(Path(module.trainer.default_root_dir), rankings)

    def _rankings(self, module: EncodingModule) -> list[Ranking]:
        """Return the rankings of the questions of all ranks, on every rank."""
        local_vectors = (
            [torch.cat(tensors).numpy() for tensors in zip(*self._vectors, strict=True)] if self._vectors else None
        )
        self._vectors = []
        vectors: dict[int, NDArray[np.float32]] = {}
        for rank_vectors in all_gather_objects(local_vectors):
            if rank_vectors is not None:
                vectors.update(zip(rank_vectors[0].tolist(), rank_vectors[1], strict=True))
        candidates = module.data.evaluated.candidates
        return [rank_pages(each, vectors) for each in candidates if each.question in vectors]


def rank_pages(candidates: Candidates, vectors: dict[int, NDArray[np.float32]]) -> Ranking:
    """Rank a document's pages for a question by their cosine similarity, rounded to six digits.

    Rounding makes ties of pages whose scores differ by numerical noise; the first page wins a tie.

    Args:
        candidates: a question and its document's pages, by their numbers.
        vectors: unit vectors [C] of questions and pages by their numbers. A page without a vector is not ranked.
    """
    numbered_pages = [(number, vectors[page]) for number, page in enumerate(candidates.pages, 1) if page in vectors]
    if not numbered_pages:
        return Ranking(candidates.question, (), ())
    numbers, pages = zip(*numbered_pages, strict=True)
    # Scores are float64, so that rounding makes the same ties whatever order a machine sums in.
    scores = (np.stack(pages).astype(np.float64) @ vectors[candidates.question].astype(np.float64)).round(6)
    # Stable, so a tie keeps the order of the pages.
    order = np.argsort(-scores, kind="stable")
    return Ranking(candidates.question, tuple(numbers[index] for index in order), tuple(scores[order].tolist()))
