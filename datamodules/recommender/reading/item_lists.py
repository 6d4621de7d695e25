"""Reads lists of items that `predict` may recommend, or must not: text files with an item id on each line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.reading.content_type import BOM, detect_binary_format
from datamodules.recommender.reading.errors import InteractionError, preview
from engine.io.unterminated_line import warn_if_unterminated

_MAX_NAMED = 10
"""Unknown ids that a message names."""


class ItemList(NamedTuple):
    """Items of a file."""

    items: NDArray[np.int64]  # numbers of the known items, ascending, from 1
    unknown: list[str]  # other ids, in the order of the file, each once

    def report(self, path: Path) -> str:
        """Return a sentence on the unknown ids; empty if there are none."""
        if not self.unknown:
            return ""
        shown = ", ".join(preview(item, 40) for item in self.unknown[:_MAX_NAMED])
        more = ", ..." if len(self.unknown) > _MAX_NAMED else ""
        total = len(self.items) + len(self.unknown)
        return f"{path}: {len(self.unknown)} of {total} ids are not items of the model and are ignored: {shown}{more}"


def read_item_list(path: Path, number_of: Mapping[str, int]) -> ItemList:
    """Read a file with an id on each line. Empty lines are skipped, and an id that occurs twice counts once.

    Args:
        path: a text file in UTF-8.
        number_of: {id: number} of the model's items.

    Raises:
        FileNotFoundError: the file does not exist.
        InteractionError: it is not UTF-8 text, or has no id. The message names file and line.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; expected a text file with an item id on each line")
    if foreign := detect_binary_format(path):
        raise InteractionError(f"{path}: {foreign}")
    ids: dict[str, None] = {}
    with path.open("rb") as file:
        for line, text in enumerate(file, start=1):
            try:
                item = text.removeprefix(BOM if line == 1 else b"").decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise InteractionError(f"{path}: line {line}: the text is not UTF-8; convert the file") from error
            if item.strip():
                ids[item] = None
    warn_if_unterminated(path)
    if not ids:
        raise InteractionError(f"{path}: found no id, expected an item id on each line")
    items = np.array(sorted(number_of[item] for item in ids if item in number_of), np.int64)
    return ItemList(items, [item for item in ids if item not in number_of])


class ItemLists(NamedTuple):
    """The options `allow_items` and `deny_items` of InteractionSequences."""

    allow: str | None = None  # file of the only items to recommend
    deny: str | None = None  # file of items not to recommend

    def read_excluded(self, item_ids: Sequence[object]) -> tuple[NDArray[np.bool_] | None, list[str]]:
        """Return which items must not be recommended.

        Args:
            item_ids: [V] ids of item 1, 2, ...

        Returns:
            bool [V + 1], true for excluded items and for 0 (padding), or None without lists; and a sentence on the
            unknown ids of each file that has some.

        Raises:
            FileNotFoundError: a file does not exist.
            InteractionError: a file cannot be read, or no item is left.
        """
        if self == ItemLists():
            return None, []
        number_of = {str(item): number for number, item in enumerate(item_ids, start=1)}
        excluded, reports = np.zeros(len(item_ids) + 1, np.bool_), []
        if self.allow is not None:
            allowed = _read_item_list("allow_items", self.allow, number_of)
            reports.append(allowed.report(Path(self.allow)))
            if not len(allowed.items):
                raise InteractionError(
                    f"data.init_args.allow_items: {reports[0]}. None is left to recommend; expected ids as in the data"
                )
            excluded[:] = True
            excluded[allowed.items] = False
        if self.deny is not None:
            denied = _read_item_list("deny_items", self.deny, number_of)
            reports.append(denied.report(Path(self.deny)))
            excluded[denied.items] = True
        excluded[0] = True
        if excluded.all():
            lists = f"{self.allow} without those of {self.deny}" if self.allow else f"all but those of {self.deny}"
            raise InteractionError(
                f"data.init_args.deny_items: no item is left to recommend ({lists}); expected a shorter list"
            )
        return excluded, [report for report in reports if report]


def _read_item_list(option: str, path: str, number_of: Mapping[str, int]) -> ItemList:
    try:
        return read_item_list(Path(path), number_of)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"data.init_args.{option}: {error}") from error
