"""Draws questions about a chapter."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.document_qa.manuals.devices import Chapter, one, some
from datamodules.document_qa.manuals.kinds import (
    DRAWING,
    KINDS,
    OPTIONS,
    UNANSWERABLE_BASES,
    UNANSWERABLE_KIND,
    Asking,
    Kind,
    ask_unanswerable,
)
from datamodules.document_qa.manuals.settings import AskingSettings, ManualSettings
from datamodules.document_qa.manuals.wordings import ON_PAGE, UNSEEN_WORDINGS, WORDINGS
from datamodules.document_qa.question import UNANSWERABLE, AnswerType, Source


class Asked(NamedTuple):
    """A question with all that is known of it."""

    kind: str
    seen_wording: bool  # whether training has questions in these words
    question: str
    options: tuple[str, ...]  # none: an open question
    answer: str
    right: int | None  # place of the answer in `options`
    answer_type: AnswerType
    source: Source
    pages: tuple[int, ...]  # that the answer follows from; of an unanswerable question none


@dataclass(frozen=True)
class Asker:
    """Asks as the settings say.

    Raises:
        ValueError: a kind that there is not, or that the pages do not answer; more unanswerable questions than the
            answerable ones can hide.
    """

    manuals: ManualSettings
    asking: AskingSettings

    def __post_init__(self) -> None:
        self.manuals.check()
        self.asking.check()
        named = {name: share for name, share in self.asking.kinds.items() if share}
        known = (*KINDS, UNANSWERABLE_KIND, DRAWING.name)
        if set(named) - set(known) or min(named.values(), default=1.0) < 0 or (self.asking.kinds and not named):
            raise ValueError(
                f"data.asking.kinds: found {self.asking.kinds}, expected shares of 0 or more of {', '.join(known)}, "
                "and one above 0"
            )
        for name in set(named) - {UNANSWERABLE_KIND}:
            if missing := set(self._kind(name).pages).difference(self.manuals.pages):
                raise ValueError(
                    f"data.asking.kinds: {name} cannot be answered, as data.manuals.pages lacks {', '.join(missing)}"
                )
        if UNANSWERABLE_KIND in self.shares and (not self._hiding or self._hidden > 1):
            raise ValueError(
                "data.asking.kinds: with so many unanswerable questions the option of being one would give them away; "
                f"expected at most a third as many as of {', '.join(UNANSWERABLE_BASES)} together"
            )

    def ask(self, random: np.random.Generator, chapter: Chapter, test: bool) -> Asked:
        """One question.

        Args:
            random: what all is drawn from.
            chapter: what it is about.
            test: whether wordings that training does not have may come.
        """
        return self._ask(random, self._drawn(random, self.shares), chapter, test)

    def describe(self, random: np.random.Generator, chapter: Chapter) -> Asked:
        """The request for a drawing in words."""
        return self._ask(random, DRAWING.name, chapter, test=False)

    def _ask(self, random: np.random.Generator, name: str, chapter: Chapter, test: bool) -> Asked:
        unanswerable = name == UNANSWERABLE_KIND
        kind = self._kind(self._drawn(random, self._hiding) if unanswerable else name)
        if unanswerable:
            asking = ask_unanswerable(random, kind, chapter, self.manuals)
        else:
            asking = kind.ask(random, chapter, self.manuals)
        seen = not (test and random.random() < self.asking.unseen_wordings)
        wording = one(random, WORDINGS[asking.wording]) if seen else UNSEEN_WORDINGS[asking.wording]
        question = wording.format(**asking.slots)
        if random.random() < self.asking.page_mentions:
            question = ON_PAGE.format(page=chapter.pages[kind.pages[0]], question=question)
        options, right = self._options(random, asking, kind.name in self._hiding)
        if unanswerable:
            return Asked(name, seen, question, options, asking.answer, right, "unanswerable", "none", ())
        pages = tuple(sorted(chapter.pages[page] for page in kind.pages))
        return Asked(name, seen, question, options, asking.answer, right, kind.answer_type, kind.source, pages)

    @staticmethod
    def description(chapter: Chapter) -> str:
        """The drawing in words, with the request for it."""
        asking = DRAWING.ask(np.random.Generator(np.random.Philox(key=0)), chapter, ManualSettings())
        return "\n".join([WORDINGS[DRAWING.name][0].format(**asking.slots), asking.answer])

    def _options(
        self, random: np.random.Generator, asking: Asking, may_hide: bool
    ) -> tuple[tuple[str, ...], int | None]:
        """Of a choice question, and where the right one is among them."""
        if not asking.others or random.random() >= self.asking.choice_share:
            return (), None
        wrong = some(random, asking.others, OPTIONS - 1)
        if asking.answer != UNANSWERABLE and may_hide and random.random() < self._hidden:
            wrong[0] = UNANSWERABLE
        wrong = some(random, wrong, OPTIONS - 1)
        right = int(np.searchsorted(self._letters[:-1], random.random(), side="right"))
        return (*wrong[:right], asking.answer, *wrong[right:]), right

    @cached_property
    def shares(self) -> dict[str, float]:
        """Of each kind that is asked, of 1."""
        sizes = {name: share for name, share in self.asking.kinds.items() if share}
        if not sizes:
            pages = set(self.manuals.pages)
            sizes = {name: 1.0 for name, kind in KINDS.items() if pages.issuperset(kind.pages)}
            if not set(UNANSWERABLE_BASES).isdisjoint(sizes):
                sizes[UNANSWERABLE_KIND] = 1.0
        whole = sum(sizes.values())
        return {name: size / whole for name, size in sizes.items()}

    @cached_property
    def _hiding(self) -> dict[str, float]:
        """Shares of the kinds that unanswerable questions are worded like."""
        return {name: self.shares[name] for name in UNANSWERABLE_BASES if name in self.shares}

    @property
    def _hidden(self) -> float:
        """How many of their choice questions have the option of an unanswerable one, which in one of four is right."""
        unanswerable = self.shares.get(UNANSWERABLE_KIND, 0.0)
        return (OPTIONS - 1) * unanswerable / sum(self._hiding.values()) if unanswerable else 0.0

    @cached_property
    def _letters(self) -> NDArray[np.float64]:
        until = np.cumsum(np.array(self.asking.letters, np.float64))
        return until / until[-1]

    @staticmethod
    def _kind(name: str) -> Kind:
        return DRAWING if name == DRAWING.name else KINDS[name]

    @staticmethod
    def _drawn(random: np.random.Generator, shares: dict[str, float]) -> str:
        at, until = random.random() * sum(shares.values()), 0.0
        for name, share in shares.items():
            until += share
            if at < until:
                break
        return name
