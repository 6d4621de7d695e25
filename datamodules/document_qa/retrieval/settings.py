"""Which pages of a document come before a question."""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["all_pages", "oracle", "page_mention_bm25", "bm25", "dense", "hybrid"]

WITH_RANKINGS: tuple[Kind, ...] = ("dense", "hybrid")


@dataclass(frozen=True)
class RetrieverSettings:
    """How pages are found. Words find words: no bm25 finds a page that is a picture alone (a scan, a drawing without text); a question that names its page, dense and hybrid do.

    Args:
        kind: `bm25` (Okapi BM25 over words, numbers and Chinese characters), `page_mention_bm25` (first the pages that the question names, as in "on page 3" and "第10页", then bm25), `dense` (as a trained PageRetriever ranks them), `hybrid` (bm25 and dense, by reciprocal rank fusion), `oracle` (the evidence pages; where a question tells none, the first one by bm25), `all_pages` (all, in their order).
        pages: the most pages, the best first; null for as many as the context takes. Of all_pages and oracle it takes none away. It is of each question: a chat that trains on several (data.questions_per_chat) shows the pages of all of them, as each needs its own; data.context.tokens bounds them all the same.
        rankings: of dense and hybrid: the file that `predict` of a PageRetriever wrote, or its run.
    """  # noqa: E501

    kind: Kind = "page_mention_bm25"
    pages: int | None = 4
    rankings: str | None = None

    def check(self, name: str = "retriever.") -> None:
        """
        Args:
            name: of these settings, for errors.

        Raises:
            ValueError: a value cannot be used.
        """
        if self.kind not in get_args(Kind):
            raise ValueError(f"{name}kind must be one of {', '.join(get_args(Kind))}; got {self.kind!r}")
        if self.pages is not None and self.pages < 1:
            raise ValueError(f"{name}pages must be at least 1, or null for any number; got {self.pages}")
        if self.rankings is None and self.kind in WITH_RANKINGS:
            raise ValueError(f"{name}kind {self.kind} needs {name}rankings: a PageRetriever's run or rankings.jsonl")
        if self.rankings is not None and self.kind not in WITH_RANKINGS:
            raise ValueError(f"{name}rankings is of no use to {self.kind}, only to {' and '.join(WITH_RANKINGS)}")
