"""What synthetic manuals are like, and what is asked about them."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, get_args

PageKind = Literal["text", "table", "figure"]
PAGE_KINDS: tuple[PageKind, ...] = get_args(PageKind)

Callouts = Literal["inside", "leader"]
"""Where a part's number stands in a drawing: in the part, or beside it, at the end of a leader line."""

COLUMNS: dict[str, str] = {"mass": "g", "current": "A", "voltage": "V", "length": "mm"}
"""What a table may list, with its unit."""

LISTED = range(10, 100, 10)
"""The numbers in it."""

LARGEST_GRID = 3


class Split(IntEnum):
    """Part of the hash, so no two splits draw from the same random numbers, and no two share a document."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


@dataclass(frozen=True)
class ManualSettings:
    """What a manual is like.

    Args:
        chapters: assemblies of the device, each with pages of its own; those that a question is not about are there to distract.
        parts: of each assembly, at least 4: the wrong options are other parts' values.
        highest_number: parts have numbers from 1 to this one; every chapter begins anew. More than `parts`, or nothing could be asked about a part that is not there.
        columns: how many of mass, current, voltage and length a chapter's table has, 1 to 3: one is always missing.
        pages: a chapter's pages, each of another kind; in any order where `shuffled_pages`.
        shuffled_pages: in each document, chapters' pages are in another order.
        grid: cells along each edge of a drawing, each with room for a part.
        callouts: where the parts' numbers stand in a drawing.
        figure_size: pixels of a drawing's edges.
    """  # noqa: E501

    chapters: int = 2
    parts: int = 4
    highest_number: int = 9
    columns: int = 2
    pages: tuple[PageKind, ...] = PAGE_KINDS
    shuffled_pages: bool = True
    grid: int = 2
    callouts: Callouts = "inside"
    figure_size: int = 96

    def check(self) -> None:
        """Raises ValueError when there is no such manual."""
        limits = {
            "chapters": (1, 10),
            "parts": (4, self.grid**2),
            "highest_number": (self.parts + 1, 99),
            "columns": (1, len(COLUMNS) - 1),
            "grid": (2, LARGEST_GRID),
            "figure_size": (16, 2048),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"data.manuals.{name}: found {getattr(self, name)}, expected {least} to {most}")
        if not self.pages or len(set(self.pages)) != len(self.pages):
            raise ValueError(f"data.manuals.pages: found {list(self.pages)}, expected each kind once at most")


@dataclass(frozen=True)
class AskingSettings:
    """What is asked.

    Args:
        kinds: share of each kind of question, in any unit, see kinds.py; a kind left out is not asked. Empty: all alike that the pages have answers to.
        choice_share: share of the questions with four options; the others are open.
        letters: how often each of the four options is the right one, in any unit. In the questions of CCKS 2025: [14.3, 41.7, 33.7, 10.3].
        page_mentions: share of the questions that say on which page the answer is.
        unseen_wordings: share of the test's questions in words that training never has.
    """  # noqa: E501

    kinds: dict[str, float] = field(default_factory=dict)
    choice_share: float = 0.5
    letters: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    page_mentions: float = 0.1
    unseen_wordings: float = 0.2

    def check(self) -> None:
        """Raises ValueError when something is no share."""
        for name in ("choice_share", "page_mentions", "unseen_wordings"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"data.asking.{name}: found {getattr(self, name)}, expected a share in [0, 1]")
        if min(self.letters) < 0 or sum(self.letters) <= 0:
            raise ValueError(f"data.asking.letters: found {self.letters}, expected shares, one of them above 0")
