"""Defines the settings of the retriever."""

from dataclasses import dataclass
from typing import Literal, get_args

from engine.number_check import check_numbers

Kind = Literal["all_pages", "oracle", "page_mention_bm25", "bm25", "dense", "hybrid"]

WITH_RANKINGS: tuple[Kind, ...] = ("dense", "hybrid")


WITHOUT_ORDER: tuple[Kind, ...] = ("all_pages", "oracle")


@dataclass(frozen=True)
class RetrieverSettings:
    """How the pages of a document are ranked for a question.

    bm25 matches words, so it cannot find pages that are images only (a scan, a drawing without text). Page mentions,
    `dense` and `hybrid` can.

    Args:
        kind: `bm25` (BM25 over words, numbers and Chinese characters), `page_mention_bm25` (pages that the question
            mentions, as in "on page 3" or "第10页", then bm25), `dense` (rankings of a trained PageRetriever), `hybrid`
            (bm25 and dense, by reciprocal rank fusion), `oracle` (the evidence pages; if unknown, the first page by
            bm25), `all_pages` (all, in their order).
        pages: largest number of pages, best first; null for as many as fit the context. Ignored by all_pages and
            oracle. The limit applies to each question: the context of a training chat with several questions
            (data.questions_per_chat) contains the pages of all of them, within data.context.tokens.
        rankings: for dense and hybrid: the file that `predict` of a PageRetriever has written, or its run.
        reranker: folder of a cross-encoder, a model of transformers for sequence classification with one logit. It
            reads the question with each of the best `reranked` pages and orders them anew, on the CPU; null for none.
        reranked: number of pages that the reranker orders.
    """

    kind: Kind = "page_mention_bm25"
    pages: int | None = 4
    rankings: str | None = None
    reranker: str | None = None
    reranked: int = 10

    def check(self, name: str = "retriever.") -> None:
        """Check the settings.

        Args:
            name: prefix of the settings in messages.

        Raises:
            ValueError: a value is invalid.
        """
        if self.kind not in get_args(Kind):
            raise ValueError(f"{name}kind must be one of {', '.join(get_args(Kind))}; got {self.kind!r}")
        check_numbers(name, {"pages": self.pages, "reranked": self.reranked}, at_least=1)
        if self.reranker is not None and self.kind in WITHOUT_ORDER:
            raise ValueError(f"{name}reranker orders the pages of a search, but {name}kind is {self.kind}")
        if self.rankings is None and self.kind in WITH_RANKINGS:
            raise ValueError(f"{name}kind {self.kind} requires {name}rankings: a PageRetriever's run or rankings.jsonl")
        if self.rankings is not None and self.kind not in WITH_RANKINGS:
            raise ValueError(f"{name}rankings applies to {' and '.join(WITH_RANKINGS)} only, got kind {self.kind}")
