"""Defines the settings of synthetic manuals and of the questions about them."""

from dataclasses import dataclass, field
from typing import Literal, get_args

PageKind = Literal["text", "table", "figure"]
PAGE_KINDS: tuple[PageKind, ...] = get_args(PageKind)

Callouts = Literal["inside", "leader"]
"""Position of a part's number in a drawing: inside the part, or beside it at the end of a leader line."""

COLUMNS: dict[str, str] = {"mass": "g", "current": "A", "voltage": "V", "length": "mm"}
"""Possible columns of a table, with their units."""

LISTED = range(10, 100, 10)
"""The values in a table."""

LARGEST_GRID = 3


@dataclass(frozen=True)
class ManualSettings:
    """Properties of a manual.

    Args:
        chapters: number of assemblies of the device, each with its own pages; all but the assembly that a question is
            about are distractors.
        parts_per_chapter: number of parts of a chapter's assembly, at least 4: wrong options are values of other parts.
        highest_number: part numbers are from 1 to this number, in every chapter. It must exceed `parts_per_chapter`, so
            that questions about missing parts are possible.
        columns: number of table columns out of mass, current, voltage and length, 1 to 3: at least one is missing.
        pages: kinds of pages of a chapter, each once.
        shuffled_pages: shuffle the pages within chapters, for each document.
        grid: number of cells along each edge of a drawing; each cell holds at most one part.
        callouts: position of part numbers in a drawing.
        figure_size: edge length of a drawing in pixels.
    """

    chapters: int = 2
    parts_per_chapter: int = 4
    highest_number: int = 9
    columns: int = 2
    pages: tuple[PageKind, ...] = PAGE_KINDS
    shuffled_pages: bool = True
    grid: int = 2
    callouts: Callouts = "inside"
    figure_size: int = 96

    def check(self) -> None:
        """Raise ValueError if a setting is invalid."""
        limits = {
            "grid": (2, LARGEST_GRID),  # before the parts, whose limit follows from it
            "chapters": (1, 10),
            "parts_per_chapter": (4, self.grid**2),
            "highest_number": (self.parts_per_chapter + 1, 99),
            "columns": (1, len(COLUMNS) - 1),
            "figure_size": (16, 2048),
        }
        for name, (least, most) in limits.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(
                    f"data.init_args.manuals.{name}: found {getattr(self, name)}, expected {least} to {most}"
                )
        if not self.pages or len(set(self.pages)) != len(self.pages):
            raise ValueError(f"data.init_args.manuals.pages: found {list(self.pages)}, expected each kind at most once")


@dataclass(frozen=True)
class ManualQuestionSettings:
    """Properties of the questions.

    Args:
        task_mix: weight of each kind of question, see question_types.py; kinds that are not listed do not occur.
            Empty: all of KINDS that the pages can answer, with equal weights.
        choice_share: fraction of questions with four options; the others are open questions.
        answer_letter_weights: weights of the four letters as right answer. In CCKS 2025: [14.3, 41.7, 33.7, 10.3].
        page_mentions: fraction of questions that mention the page of the answer.
        unseen_wordings: fraction of test questions with wordings that do not occur in training.
        stated_parts: answers that need two lookups (hop and cross kinds) state the part that the first of them finds:
            "7, material steel". Such questions are open, as options would reveal the part.
    """

    task_mix: dict[str, float] = field(default_factory=dict)
    choice_share: float = 0.5
    answer_letter_weights: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    page_mentions: float = 0.1
    unseen_wordings: float = 0.2
    stated_parts: bool = False

    def check(self) -> None:
        """Raise ValueError if a setting is invalid."""
        for name in ("choice_share", "page_mentions", "unseen_wordings"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"data.init_args.questions.{name}: found {getattr(self, name)}, expected a number in [0, 1]"
                )
        weights = self.answer_letter_weights
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError(
                f"data.init_args.questions.answer_letter_weights: found {weights}, expected weights, at least "
                "one above 0"
            )
